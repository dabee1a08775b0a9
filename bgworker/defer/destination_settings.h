/*
 * destination_settings.h
 *		The settings of destinations that have any.
 */
#ifndef OUTBOX_DESTINATION_SETTINGS_H
#define OUTBOX_DESTINATION_SETTINGS_H

#include "utils/hsearch.h"

#include "src/limits.h"
#include "src/log/entry.h"

typedef struct Destination
{
	char		dest[MAX_NAME_BYTES + 1];	/* hash key */
	text	   *stream;			/* its key in Redis; NULL = its name */
	int			maxlen;			/* -1 = outbox.stream_maxlen */
	EntryFormat format;			/* of its entries */
	bool		paused;
} Destination;

extern void destination_load(void);
extern const Destination *destination_find(const text *dest);
extern bool destination_all_paused(void);
extern void destination_each_paused(void (*visit) (const char *dest));
extern HTAB *destination_make_table(const char *name, MemoryContext memory, Size entry_size);
extern void *destination_look_up(HTAB *table, const text *dest);
extern void destination_key(const text *dest, char *key);

#endif							/* OUTBOX_DESTINATION_SETTINGS_H */
