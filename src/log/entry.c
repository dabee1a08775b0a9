/*
 * entry.c
 *		The form of a message in a stream: flat fields, text as UTF-8.
 *
 *	 id <message id> time <enqueued, Unix ms> body <bytes> [cause <incoming
 *	 message id>] [<header> <value> ...]
 *
 * Used by command.c, which writes them into a batch, and outbox_send().
 */
#include "postgres.h"

#include "access/detoast.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/limits.h"
#include "src/log/entry.h"

static void count_bytes(const char *bytes, size_t size, void *arg);
static void write_time(TimestampTz at, EntrySink sink, void *arg);
static void write_body(bytea *body, EntrySink sink, void *arg);
static void write_headers(Jsonb *headers, EntryParts parts, EntrySink sink, void *arg);
static void write_header_value(const JsonbValue *name, const JsonbValue *value, EntrySink sink, void *arg);
static void write_string(const char *string, EntrySink sink, void *arg);
static void write_utf8(const char *string, int length, EntrySink sink, void *arg);

/*
 * Raises 54000 if a message has more bytes than may be sent, and 22023 if its
 * headers are invalid or too many. A number may be short as it is stored and
 * long as it is sent.
 */
void
entry_check(const Message *message)
{
	size_t		body = toast_raw_datum_size(PointerGetDatum(message->body)) - VARHDRSZ;

	if (body > MAX_BODY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("body is too large"),
				 errdetail("It has %zu bytes; %d are allowed.", body, MAX_BODY_BYTES)));
	if (message->headers)
		entry_check_headers(message->headers);
}

/* The same for headers alone. */
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

/*
 * Returns an iterator that names and values of headers can be read from. Raises
 * 22023 if they are not a JSON object.
 */
JsonbIterator *
entry_open_headers(Jsonb *headers)
{
	JsonbIterator *iterator;
	JsonbValue	object;

	if (!JB_ROOT_IS_OBJECT(headers))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("headers must be a JSON object")));
	iterator = JsonbIteratorInit(&headers->root);
	(void) JsonbIteratorNext(&iterator, &object, true);
	return iterator;
}

/* Returns how many fields an entry has: names and values together. */
int
entry_count_fields(const Message *message)
{
	return 2 * (3 + (message->cause ? 1 : 0) +
				(message->headers ? JB_ROOT_COUNT(message->headers) : 0));
}

/* Passes the names or the values of an entry to the sink, or both in turn. */
void
entry_write(const Message *message, EntryParts parts, EntrySink sink, void *arg)
{
	bool		names = parts & ENTRY_NAMES;
	bool		values = parts & ENTRY_VALUES;

	if (names)
		write_string("id", sink, arg);
	if (values)
		entry_write_text(message->message_id, sink, arg);
	if (names)
		write_string("time", sink, arg);
	if (values)
		write_time(message->at, sink, arg);
	if (names)
		write_string("body", sink, arg);
	if (values)
		write_body(message->body, sink, arg);
	if (names && message->cause)
		write_string("cause", sink, arg);
	if (values && message->cause)
		entry_write_text(message->cause, sink, arg);
	if (message->headers)
		write_headers(message->headers, parts, sink, arg);
}

/* Passes a text to the sink, as UTF-8. */
void
entry_write_text(const text *value, EntrySink sink, void *arg)
{
	write_utf8(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), sink, arg);
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
	int64		ms = (at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY) / 1000;

	sink(unix_ms, pg_lltoa(ms, unix_ms), arg);
}

/* Passes a body to the sink; it is fetched if it is stored out of line. */
static void
write_body(bytea *body, EntrySink sink, void *arg)
{
	bytea	   *bytes = DatumGetByteaPP(PointerGetDatum(body));

	sink(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes), arg);
}

/*
 * Passes the headers to the sink. They were checked when the message was
 * stored, but a superuser may have stored anything.
 */
static void
write_headers(Jsonb *headers, EntryParts parts, EntrySink sink, void *arg)
{
	JsonbIterator *iterator = entry_open_headers(headers);
	JsonbValue	name;
	JsonbValue	value;

	/*
	 * With more fields than Lua in Redis can unpack, the script would end in
	 * the middle of its batch.
	 */
	if (JB_ROOT_COUNT(headers) > MAX_HEADERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("too many headers"),
				 errdetail("There are %u; %d are allowed.", JB_ROOT_COUNT(headers), MAX_HEADERS)));
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		CHECK_FOR_INTERRUPTS();
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (parts & ENTRY_NAMES)
			write_utf8(name.val.string.val, name.val.string.len, sink, arg);
		if (parts & ENTRY_VALUES)
			write_header_value(&name, &value, sink, arg);
	}
}

/* Passes the value of a header to the sink. */
static void
write_header_value(const JsonbValue *name, const JsonbValue *value, EntrySink sink, void *arg)
{
	if (value->type == jbvString)
		write_utf8(value->val.string.val, value->val.string.len, sink, arg);
	else if (value->type == jbvBool)
		write_string(value->val.boolean ? "true" : "false", sink, arg);
	else if (value->type == jbvNumeric)
	{
		char	   *number = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));

		write_string(number, sink, arg);
		pfree(number);
	}
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"%.*s\" must be a string, a number or a boolean",
						name->val.string.len, name->val.string.val)));
}

/* Passes a string that is ASCII to the sink. */
static void
write_string(const char *string, EntrySink sink, void *arg)
{
	sink(string, strlen(string), arg);
}

/* Passes a string in the encoding of the database to the sink, as UTF-8. */
static void
write_utf8(const char *string, int length, EntrySink sink, void *arg)
{
	char	   *converted = pg_server_to_any(string, length, PG_UTF8);

	sink(converted, converted == string ? length : strlen(converted), arg);
	if (converted != string)
		pfree(converted);
}
