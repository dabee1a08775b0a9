/*
 * entry.c
 *		The form of a message in a stream: flat fields, text as UTF-8.
 *
 *	 id <message id> time <enqueued, Unix ms> body <bytes> [cause <incoming
 *	 message id>] [key <key>] [<header> <value> ...]
 *
 * Used by command.c, which writes them into a batch, and by send.c; headers.c
 * and arguments.c ask whether headers may be sent. A destination may ask for
 * another form, which cloudevent.c writes.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/limits.h"
#include "src/stream/cloudevent.h"
#include "src/stream/entry.h"

static void write_plain(const Message *message, EntryParts parts, EntrySink sink, void *arg);
static void count_one(const char *bytes, size_t size, void *arg);
static void count_bytes(const char *bytes, size_t size, void *arg);
static void write_time(TimestampTz at, EntrySink sink, void *arg);
static void write_headers(Jsonb *headers, EntryParts parts, EntrySink sink, void *arg);

/* Returns the format with that name; NULL is the plain one. */
EntryFormat
entry_format_from_name(const char *name)
{
	return name && strcmp(name, "cloudevents") == 0 ? ENTRY_CLOUDEVENTS : ENTRY_PLAIN;
}

/*
 * Raises 54000 if headers have more bytes than may be sent, and 22023 if they are
 * invalid or too many. A number may be short as it is stored and long as it is
 * sent.
 */
void
entry_check_headers(Jsonb *headers)
{
	size_t		size = 0;

	write_headers(headers, ENTRY_BOTH, count_bytes, &size);
	if (size > MAX_HEADER_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers are too large"),
				 errdetail("They have %zu bytes as they are sent; %d are allowed.", size, MAX_HEADER_BYTES)));
}

/* Returns how many fields an entry has: names and values together. */
int
entry_count_fields(const Message *message, EntryFormat format)
{
	int			names = 0;

	entry_write(message, format, ENTRY_NAMES, count_one, &names);
	return 2 * names;
}

/* Passes the names or the values of an entry to the sink, or both in turn. */
void
entry_write(const Message *message, EntryFormat format, EntryParts parts, EntrySink sink, void *arg)
{
	if (format == ENTRY_CLOUDEVENTS)
		cloudevent_write(message, parts, sink, arg);
	else
		write_plain(message, parts, sink, arg);
}

/* Passes an entry in the plain form to the sink. */
static void
write_plain(const Message *message, EntryParts parts, EntrySink sink, void *arg)
{
	if (field_begin("id", parts, sink, arg))
		field_write_text(message->message_id, sink, arg);
	if (field_begin("time", parts, sink, arg))
		write_time(message->at, sink, arg);
	if (field_begin("body", parts, sink, arg))
		field_write_body(message->body, sink, arg);
	if (message->cause && field_begin("cause", parts, sink, arg))
		field_write_text(message->cause, sink, arg);
	if (message->partition_key && field_begin("key", parts, sink, arg))
		field_write_text(message->partition_key, sink, arg);
	if (message->headers)
		write_headers(message->headers, parts, sink, arg);
}

/* An EntrySink. */
static void
count_one(const char *bytes, size_t size, void *arg)
{
	(*(int *) arg)++;
}

/* An EntrySink. */
static void
count_bytes(const char *bytes, size_t size, void *arg)
{
	*(size_t *) arg += size;
}

/* Passes a time to the sink, as Unix milliseconds. */
static void
write_time(TimestampTz at, EntrySink sink, void *arg)
{
	char		unix_ms[24];
	int64		ms = clock_unix_ms(at);

	sink(unix_ms, pg_lltoa(ms, unix_ms), arg);
}

/*
 * Passes the headers to the sink. They were checked when the message was
 * stored, but a superuser may have stored anything.
 */
static void
write_headers(Jsonb *headers, EntryParts parts, EntrySink sink, void *arg)
{
	JsonbIterator *iterator = field_open_headers(headers);
	JsonbValue	name;
	JsonbValue	value;

	while (field_next_header(&iterator, &name, &value))
	{
		if (parts & ENTRY_NAMES)
			field_write_utf8(name.val.string.val, name.val.string.len, sink, arg);
		if (parts & ENTRY_VALUES)
			field_write_header_value(&name, &value, sink, arg);
	}
}
