/*
 * entry.c
 *		What a message looks like in a stream: flat fields, text as UTF-8.
 *
 *	 id <message id> time <enqueued, Unix ms> body <bytes> [cause <incoming
 *	 message id>] [<header> <value> ...]
 *
 * For chunk.c, which writes them into a chunk, and outbox_send().
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/entry.h"

static void write_headers(Jsonb *headers, EntrySink sink, void *arg);
static void write_string(const char *string, EntrySink sink, void *arg);
static void write_utf8(const char *string, int length, EntrySink sink, void *arg);

/* How many fields an entry has: names and values together. */
int
entry_count_fields(const Message *message)
{
	return 2 * (3 + (message->cause ? 1 : 0) +
				(message->headers ? JB_ROOT_COUNT(message->headers) : 0));
}

/* Hands all names and values of an entry to the sink. */
void
entry_write(const Message *message, EntrySink sink, void *arg)
{
	char		unix_ms[24];
	bytea	   *body = DatumGetByteaPP(PointerGetDatum(message->body));
	int64		ms = (message->at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY) / 1000;

	write_string("id", sink, arg);
	entry_write_text(message->message_id, sink, arg);
	write_string("time", sink, arg);
	sink(unix_ms, pg_lltoa(ms, unix_ms), arg);
	write_string("body", sink, arg);
	sink(VARDATA_ANY(body), VARSIZE_ANY_EXHDR(body), arg);
	if (message->cause)
	{
		write_string("cause", sink, arg);
		entry_write_text(message->cause, sink, arg);
	}
	if (message->headers)
		write_headers(message->headers, sink, arg);
}

/* Hands a text to the sink, as UTF-8. */
void
entry_write_text(const text *value, EntrySink sink, void *arg)
{
	write_utf8(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), sink, arg);
}

static void
write_headers(Jsonb *headers, EntrySink sink, void *arg)
{
	JsonbIterator *iterator = JsonbIteratorInit(&headers->root);
	JsonbValue	name;
	JsonbValue	value;

	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		write_utf8(name.val.string.val, name.val.string.len, sink, arg);
		if (value.type == jbvString)
			write_utf8(value.val.string.val, value.val.string.len, sink, arg);
		else if (value.type == jbvBool)
			write_string(value.val.boolean ? "true" : "false", sink, arg);
		else
			write_string(DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric))),
						 sink, arg);
	}
}

static void
write_string(const char *string, EntrySink sink, void *arg)
{
	sink(string, strlen(string), arg);
}

static void
write_utf8(const char *string, int length, EntrySink sink, void *arg)
{
	char	   *converted = pg_server_to_any(string, length, PG_UTF8);

	sink(converted, converted == string ? length : strlen(converted), arg);
}
