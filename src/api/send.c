/*
 * send.c
 *		outbox_send(): immediate dispatch.
 *
 * The one function in which a caller waits for Redis: the message goes there
 * now, outside of the transaction, whatever becomes of that. It needs no
 * dispatcher. The caller is told of every failure; after one that came while
 * the answer was due nobody knows whether the message has arrived.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/compat.h"
#include "src/log/entry.h"
#include "src/record/owner.h"
#include "src/record/session.h"
#include "src/redis/redis_connect.h"
#include "src/settings.h"
#include "src/table/relations.h"

/* The arguments of one XADD. */
typedef struct Arguments
{
	int			n;
	const char **values;
	size_t	   *sizes;
} Arguments;

static Datum send_message(FunctionCallInfo fcinfo, Oid body_type);
static char *send_now(Message *message);
static void read_destination(Message *message, int *maxlen);
static void make_arguments(const Message *message, int maxlen, Arguments *arguments);
static void add(const char *bytes, size_t size, void *arg);
static char *add_entry(RedisLink *link, const Arguments *arguments);
static void attend(void);

PG_FUNCTION_INFO_V1(outbox_send_text);
PG_FUNCTION_INFO_V1(outbox_send_json);
PG_FUNCTION_INFO_V1(outbox_send_jsonb);
PG_FUNCTION_INFO_V1(outbox_send_bytea);

/* outbox_send(dest, body, headers, message_id) */
Datum
outbox_send_text(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, TEXTOID);
}

Datum
outbox_send_json(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, JSONOID);
}

Datum
outbox_send_jsonb(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, JSONBOID);
}

Datum
outbox_send_bytea(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, BYTEAOID);
}

static Datum
send_message(FunctionCallInfo fcinfo, Oid body_type)
{
	Message		message;
	const RecordName *record;

	owner_code_refuse();
	argument_message(fcinfo, body_type, &message);
	message.at = GetCurrentTimestamp();
	record = session_open_record();
	if (record)
		message.cause = cstring_to_text(record->msgid);
	PG_RETURN_TEXT_P(cstring_to_text(send_now(&message)));
}

/*
 * Adds a message to its stream now and returns the id of the entry, palloc'd.
 *
 * Interruptible; waits no longer than outbox.connect_timeout and
 * outbox.command_timeout. Raises 08006 if Redis cannot be reached or
 * refuses.
 */
static char *
send_now(Message *message)
{
	RedisLink  *link;
	Arguments	arguments;
	char	   *volatile entry = NULL;
	char	   *volatile error = NULL;
	int			maxlen;

	read_destination(message, &maxlen);
	make_arguments(message, maxlen, &arguments);

	/* Right before: an error that nobody catches would leave it behind. */
	link = redis_link_create(attend);
	PG_TRY();
	{
		if (redis_connect(link))
			entry = add_entry(link, &arguments);
		if (entry == NULL)
			error = pstrdup(redis_link_error(link));
	}
	PG_FINALLY();
	{
		redis_link_free(link);
	}
	PG_END_TRY();

	if (error)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not send the message to Redis: %s", error)));
	return entry;
}

/* Puts the stream in the place of the name, if the destination has one. */
static void
read_destination(Message *message, int *maxlen)
{
	Relation	table = table_open(relations_enter()->destination, AccessShareLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	TableScanDesc scan = table_beginscan(table, SnapshotSelf, 0, NULL);
	char	   *dest = text_to_cstring(message->dest);

	*maxlen = outbox_stream_maxlen;
	while (table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		slot_getallattrs(row);
		if (strcmp(TextDatumGetCString(row->tts_values[0]), dest) != 0)
			continue;
		if (!row->tts_isnull[1])
			message->dest = DatumGetTextPCopy(row->tts_values[1]);
		if (!row->tts_isnull[2])
			*maxlen = DatumGetInt32(row->tts_values[2]);
		break;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	table_close(table, AccessShareLock);
}

static void
make_arguments(const Message *message, int maxlen, Arguments *arguments)
{
	int			size = entry_count_fields(message) + 6;

	arguments->n = 0;
	arguments->values = palloc(size * sizeof(char *));
	arguments->sizes = palloc(size * sizeof(size_t));
	add("XADD", 4, arguments);
	entry_write_text(message->dest, add, arguments);
	if (maxlen > 0)
	{
		char	   *length = psprintf("%d", maxlen);

		add("MAXLEN", 6, arguments);
		add("~", 1, arguments);
		add(length, strlen(length), arguments);
	}
	add("*", 1, arguments);
	entry_write(message, add, arguments);
}

/* An EntrySink. */
static void
add(const char *bytes, size_t size, void *arg)
{
	Arguments  *arguments = arg;
	char	   *copy = palloc(size + 1);

	memcpy(copy, bytes, size);
	arguments->values[arguments->n] = copy;
	arguments->sizes[arguments->n] = size;
	arguments->n++;
}

/* Returns the id of the entry; NULL with the link's error if there is none. */
static char *
add_entry(RedisLink *link, const Arguments *arguments)
{
	redisReply *reply = redis_link_call_binary(link, arguments->n, arguments->values, arguments->sizes);
	char		entry[64] = "";

	if (reply == NULL)
		return NULL;
	if (reply->type == REDIS_REPLY_STRING && reply->len < sizeof(entry) &&
		strspn(reply->str, "0123456789-") == reply->len)
		strlcpy(entry, reply->str, sizeof(entry));
	else
		redis_link_refused(link, reply, "the message was not added");
	freeReplyObject(reply);
	return entry[0] ? pstrdup(entry) : NULL;
}

static void
attend(void)
{
	CHECK_FOR_INTERRUPTS();
}
