/*
 * endpoint_row.h
 *		The rows of outbox.endpoint, as administrators write them.
 */
#ifndef OUTBOX_ENDPOINT_ROW_H
#define OUTBOX_ENDPOINT_ROW_H

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
typedef struct EndpointRow
{
	Datum		values[NSETTINGS];
	bool		isnull[NSETTINGS];
} EndpointRow;

extern const char *const endpoint_setting_names[NSETTINGS];

extern bool endpoint_row_read(const char *name, EndpointRow *row);
extern bool endpoint_row_insert(const EndpointRow *settings);
extern void endpoint_row_insert_default(void);
extern bool endpoint_row_update(const EndpointRow *settings, const char **reset, EndpointRow *row);
extern bool endpoint_row_delete(const char *name);

#endif							/* OUTBOX_ENDPOINT_ROW_H */
