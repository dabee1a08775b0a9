/*
 * entry.h
 *		The form of a message in a stream.
 */
#ifndef OUTBOX_ENTRY_H
#define OUTBOX_ENTRY_H

#include "src/log/log.h"
#include "src/stream/field.h"

/* The form of an entry. */
typedef enum EntryFormat
{
	ENTRY_PLAIN,
	ENTRY_CLOUDEVENTS
} EntryFormat;

extern EntryFormat entry_format_from_name(const char *name);
extern void entry_check_headers(Jsonb *headers);
extern int	entry_count_fields(const Message *message, EntryFormat format);
extern void entry_write(const Message *message, EntryFormat format, EntryParts parts, EntrySink sink, void *arg);

#endif							/* OUTBOX_ENTRY_H */
