/*
 * endpoint_settings.h
 *		The rows of outbox.endpoint, as administrators write them.
 */
#ifndef OUTBOX_ENDPOINT_SETTINGS_H
#define OUTBOX_ENDPOINT_SETTINGS_H

/* Columns of outbox.endpoint, and arguments of the functions that write them. */
enum
{
	SETTING_NAME,
	SETTING_CONCURRENCY,
	SETTING_RETENTION,
	SETTING_RECORD_TABLE,
	SETTING_RECORD_COLUMNS,
	SETTING_DEDUP_STORE,
	SETTING_STORE_RETENTION,
	NSETTINGS
};

/* A row of outbox.endpoint, or what is to become one. */
typedef struct EndpointSettings
{
	Datum		values[NSETTINGS];
	bool		isnull[NSETTINGS];
} EndpointSettings;

extern const char *const endpoint_setting_names[NSETTINGS];

extern bool endpoint_settings_read(const char *name, EndpointSettings *row);
extern bool endpoint_settings_insert(const EndpointSettings *settings);
extern void endpoint_settings_insert_default(void);
extern bool endpoint_settings_update(const EndpointSettings *settings, const char **reset, EndpointSettings *row);
extern bool endpoint_settings_delete(const char *name);

#endif							/* OUTBOX_ENDPOINT_SETTINGS_H */
