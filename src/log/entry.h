/*
 * entry.h
 *		The form of a message in a stream.
 */
#ifndef OUTBOX_ENTRY_H
#define OUTBOX_ENTRY_H

#include "src/log/log.h"

/* What of an entry is written. */
typedef enum EntryParts
{
	ENTRY_NAMES = 1,
	ENTRY_VALUES = 2,
	ENTRY_BOTH = ENTRY_NAMES | ENTRY_VALUES
} EntryParts;

/* Takes the next name or value of an entry; the bytes are valid during the call. */
typedef void (*EntrySink) (const char *bytes, size_t size, void *arg);

extern void entry_check(const Message *message);
extern void entry_check_headers(Jsonb *headers);
extern JsonbIterator *entry_open_headers(Jsonb *headers);
extern int	entry_count_fields(const Message *message);
extern void entry_write(const Message *message, EntryParts parts, EntrySink sink, void *arg);
extern void entry_write_text(const text *value, EntrySink sink, void *arg);

#endif							/* OUTBOX_ENTRY_H */
