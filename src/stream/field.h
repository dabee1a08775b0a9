/*
 * field.h
 *		The names and values of fields of an entry.
 */
#ifndef OUTBOX_FIELD_H
#define OUTBOX_FIELD_H

#include "utils/jsonb.h"

/* What of an entry is written. */
typedef enum EntryParts
{
	ENTRY_NAMES = 1,
	ENTRY_VALUES = 2,
	ENTRY_BOTH = ENTRY_NAMES | ENTRY_VALUES
} EntryParts;

/* Takes the next name or value of an entry; the bytes are valid during the call. */
typedef void (*EntrySink) (const char *bytes, size_t size, void *arg);

extern bool field_begin(const char *name, EntryParts parts, EntrySink sink, void *arg);
extern void field_write_text(const text *value, EntrySink sink, void *arg);
extern void field_write_string(const char *string, EntrySink sink, void *arg);
extern void field_write_utf8(const char *string, int length, EntrySink sink, void *arg);
extern void field_write_body(bytea *body, EntrySink sink, void *arg);
extern void field_write_header_value(const JsonbValue *name, const JsonbValue *value, EntrySink sink, void *arg);
extern JsonbIterator *field_open_headers(Jsonb *headers);
extern bool field_next_header(JsonbIterator **headers, JsonbValue *name, JsonbValue *value);

#endif							/* OUTBOX_FIELD_H */
