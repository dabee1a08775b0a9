/*
 * cloudevent.c
 *		The form of a message in a stream that has CloudEvents 1.0.
 *
 *	 ce_specversion 1.0 ce_id <message id> ce_source <source> ce_type <type>
 *	 ce_time <enqueued, RFC 3339> body <bytes> [ce_cause <incoming message id>]
 *	 [ce_partitionkey <key>] [<attribute or header> <value> ...]
 *
 * CloudEvents has no binding for Redis Streams. This is binary mode with the
 * names of the binding for Kafka: an attribute is ce_<name>, and datacontenttype
 * is content-type. Headers give the attributes; one whose name can be no
 * attribute's is left as it is. Called by entry.c alone.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/stream/cloudevent.h"
#include "src/utf8.h"

#define PREFIX	"ce_"

/* An attribute of the extension Partitioning of CloudEvents. */
#define PARTITION_KEY	PREFIX "partitionkey"

/* Which the outbox writes itself; headers give the values of two of them. */
static const char *const own_fields[] =
{PREFIX "specversion", PREFIX "id", PREFIX "source", PREFIX "type", PREFIX "time", PREFIX "cause"};

static void write_source(Jsonb *headers, EntrySink sink, void *arg);
static void write_type(const Message *message, EntrySink sink, void *arg);
static bool write_attribute_of(Jsonb *headers, const char *name, EntrySink sink, void *arg);
static const char *source_by_default(void);
static void write_time(TimestampTz at, EntrySink sink, void *arg);
static void write_headers(const Message *message, EntryParts parts, EntrySink sink, void *arg);
static char *field_of_header(const Message *message, const JsonbValue *name);
static bool is_attribute(const char *name);
static bool has_header(Jsonb *headers, const char *name);
static JsonbValue *find_header(Jsonb *headers, const char *name, JsonbValue *value);

/* Passes the names or the values of an entry to the sink, or both in turn. */
void
cloudevent_write(const Message *message, EntryParts parts, EntrySink sink, void *arg)
{
	if (field_begin(PREFIX "specversion", parts, sink, arg))
		field_write_string("1.0", sink, arg);
	if (field_begin(PREFIX "id", parts, sink, arg))
		field_write_text(message->message_id, sink, arg);
	if (field_begin(PREFIX "source", parts, sink, arg))
		write_source(message->headers, sink, arg);
	if (field_begin(PREFIX "type", parts, sink, arg))
		write_type(message, sink, arg);
	if (field_begin(PREFIX "time", parts, sink, arg))
		write_time(message->at, sink, arg);
	if (field_begin("body", parts, sink, arg))
		field_write_body(message->body, sink, arg);
	if (message->cause && field_begin(PREFIX "cause", parts, sink, arg))
		field_write_text(message->cause, sink, arg);
	if (message->partition_key && field_begin(PARTITION_KEY, parts, sink, arg))
		field_write_text(message->partition_key, sink, arg);
	if (message->headers)
		write_headers(message, parts, sink, arg);
}

/* Passes the source to the sink: that of the headers, or else the database. */
static void
write_source(Jsonb *headers, EntrySink sink, void *arg)
{
	if (!write_attribute_of(headers, "source", sink, arg))
		field_write_string(source_by_default(), sink, arg);
}

/* Passes the type to the sink: that of the headers, or else the destination. */
static void
write_type(const Message *message, EntrySink sink, void *arg)
{
	if (!write_attribute_of(message->headers, "type", sink, arg))
		field_write_text(message->dest, sink, arg);
}

/* Passes the value of an attribute to the sink. Returns false if no header gives one. */
static bool
write_attribute_of(Jsonb *headers, const char *name, EntrySink sink, void *arg)
{
	JsonbValue	header = {.type = jbvString};
	char		prefixed[16];
	JsonbValue	value;

	if (headers == NULL)
		return false;
	snprintf(prefixed, sizeof(prefixed), PREFIX "%s", name);
	if (!find_header(headers, prefixed, &value) && !find_header(headers, name, &value))
		return false;
	header.val.string.val = (char *) name;
	header.val.string.len = strlen(name);
	field_write_header_value(&header, &value, sink, arg);
	return true;
}

/*
 * Returns a reference to this database: /<name>, percent-encoded. A database is
 * not renamed while a process is connected to it. Its name may have been given in a
 * database of another encoding; then its bytes are taken as they are.
 */
static const char *
source_by_default(void)
{
	static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	static char *source = NULL;
	char	   *name;
	char	   *end;

	if (source)
		return source;
	name = get_database_name(MyDatabaseId);
	if (utf8_is_possible(cstring_to_text(name)))
		name = pg_server_to_any(name, strlen(name), PG_UTF8);
	end = source = MemoryContextAlloc(TopMemoryContext, 3 * strlen(name) + 2);
	*end++ = '/';
	for (; *name; name++)
	{
		if (strchr(unreserved, *name))
			*end++ = *name;
		else
			end += sprintf(end, "%%%02X", (unsigned char) *name);
	}
	*end = '\0';
	return source;
}

/*
 * Passes a time to the sink, as RFC 3339 has it. Only one that a superuser has
 * stored can be infinite; it is sent as another one, for a message must be sent.
 */
static void
write_time(TimestampTz at, EntrySink sink, void *arg)
{
	struct pg_tm tm;
	fsec_t		microseconds;
	char		time[64];

	if (timestamp2tm(at, NULL, &tm, &microseconds, NULL, NULL) != 0)
		(void) timestamp2tm(SetEpochTimestamp(), NULL, &tm, &microseconds, NULL, NULL);
	snprintf(time, sizeof(time), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
			 tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, microseconds);
	field_write_string(time, sink, arg);
}

/* Passes those headers to the sink that are fields of their own. */
static void
write_headers(const Message *message, EntryParts parts, EntrySink sink, void *arg)
{
	JsonbIterator *iterator = field_open_headers(message->headers);
	JsonbValue	name;
	JsonbValue	value;

	while (field_next_header(&iterator, &name, &value))
	{
		char	   *field = field_of_header(message, &name);

		if (field == NULL)
			continue;
		if (parts & ENTRY_NAMES)
			field_write_utf8(field, strlen(field), sink, arg);
		if (parts & ENTRY_VALUES)
			field_write_header_value(&name, &value, sink, arg);
		pfree(field);
	}
}

/*
 * Returns the field that a header becomes, palloc'd. NULL: the entry has another
 * field of that name, which is of the outbox or of a header that is named as the
 * field is.
 */
static char *
field_of_header(const Message *message, const JsonbValue *name)
{
	char	   *header = pnstrdup(name->val.string.val, name->val.string.len);
	char	   *field = header;

	if (strcmp(header, "datacontenttype") == 0)
		field = pstrdup("content-type");
	else if (is_attribute(header))
		field = psprintf(PREFIX "%s", header);
	if (field != header && has_header(message->headers, field))
		return NULL;
	if (message->partition_key && strcmp(field, PARTITION_KEY) == 0)
		return NULL;
	for (int i = 0; i < lengthof(own_fields); i++)
	{
		if (strcmp(field, own_fields[i]) == 0)
			return NULL;
	}
	return field;
}

/* Check whether CloudEvents allow an attribute of that name. */
static bool
is_attribute(const char *name)
{
	return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789")] == '\0' && strcmp(name, "data") != 0;
}

/* Check whether there is a header of that name. */
static bool
has_header(Jsonb *headers, const char *name)
{
	JsonbValue	value;

	return find_header(headers, name, &value) != NULL;
}

/* Finds the value of the header of that name; returns NULL if there is none. */
static JsonbValue *
find_header(Jsonb *headers, const char *name, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(&headers->root, name, strlen(name), value);
}
