/*
 * send.c
 *		outbox_send(): immediate dispatch.
 *
 * The only function in which a caller waits for Redis: the message is sent at
 * once, outside of the transaction, even if that is rolled back. It needs no
 * dispatcher. Every failure is reported to the caller; after one that occurred
 * while the answer was due it is unknown whether the message has arrived.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/api/message_id.h"
#include "src/claim/open_message.h"
#include "src/compat.h"
#include "src/owner_privileges.h"
#include "src/redis/resp.h"
#include "src/redis_cluster/redis_cluster.h"
#include "src/sender_lock.h"
#include "src/settings.h"
#include "src/stream/entry.h"
#include "src/stream/headers.h"
#include "src/stream/partition.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

/* Where a message is sent. */
typedef struct Target
{
	text	   *stream;
	int			maxlen;
	EntryFormat format;
	int			partitions;		/* 0 = one stream without a number */
} Target;

static Datum send_message(FunctionCallInfo fcinfo, Oid body_type);
static char *send_now(const Message *message);
static void read_destination(const Message *message, Target *target);
static StringInfo make_command(const Message *message, const Target *target);
static void write_stream(const Message *message, const Target *target, StringInfo command);
static void add_to_command(const char *bytes, size_t size, void *arg);
static char *add_entry(RedisCluster *redis, StringInfo command);
static void check_interrupts(void);

PG_FUNCTION_INFO_V1(outbox_send_text);
PG_FUNCTION_INFO_V1(outbox_send_json);
PG_FUNCTION_INFO_V1(outbox_send_jsonb);
PG_FUNCTION_INFO_V1(outbox_send_bytea);

/* outbox_send(dest, body, headers, message_id, key) */
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

/* Sends a message whose body is of a type, and returns the id of its entry. */
static Datum
send_message(FunctionCallInfo fcinfo, Oid body_type)
{
	Message		message;
	const RecordName *record;

	owner_code_refuse();
	argument_message(fcinfo, body_type, &message);
	message_id_take(fcinfo, &message);
	message.partition_key = argument_key(fcinfo, ARG_SEND_KEY);
	headers_add_setting(&message);
	message.at = GetCurrentTimestamp();
	record = open_message_record();
	if (record)
		message.cause = cstring_to_text(record->msgid);
	PG_RETURN_TEXT_P(cstring_to_text(send_now(&message)));
}

/*
 * Adds a message to its stream now and returns the id of the entry, palloc'd.
 *
 * It can be interrupted, and waits no longer than outbox.connect_timeout and
 * outbox.command_timeout. Raises 08006 if Redis cannot be reached or refuses the
 * message.
 */
static char *
send_now(const Message *message)
{
	RedisCluster *redis;
	StringInfo	command;
	char	   *volatile entry = NULL;
	char	   *volatile error = NULL;
	SenderLock	lock;
	Target		target;

	sender_lock_take(&lock);
	read_destination(message, &target);
	command = make_command(message, &target);

	/* As late as possible: an error before the PG_TRY would leak it. */
	redis = redis_cluster_create(check_interrupts, NULL);
	PG_TRY();
	{
		if (redis_cluster_open(redis, NULL))
			entry = add_entry(redis, command);
		if (entry == NULL)
			error = pstrdup(redis_cluster_error(redis));
	}
	PG_FINALLY();
	{
		redis_cluster_free(redis);
	}
	PG_END_TRY();
	sender_lock_release(&lock);

	if (error)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not send the message to Redis: %s", error)));
	return entry;
}

/* Reads the settings of the destination of a message. */
static void
read_destination(const Message *message, Target *target)
{
	char	   *dest = text_to_cstring(message->dest);
	RowScan		scan;

	*target = (Target) {.stream = message->dest, .maxlen = outbox_stream_maxlen, .format = ENTRY_PLAIN};
	row_scan_begin_updated(&scan, relations_enter()->destination, OWN_DESTINATION);
	while (row_scan_next(&scan))
	{
		Datum	   *values = scan.row->tts_values;
		bool	   *isnull = scan.row->tts_isnull;

		slot_getallattrs(scan.row);
		if (strcmp(TextDatumGetCString(values[0]), dest) != 0)
			continue;
		if (!isnull[1])
			target->stream = DatumGetTextPCopy(values[1]);
		if (!isnull[2])
			target->maxlen = DatumGetInt32(values[2]);
		target->format = entry_format_from_name(isnull[4] ? NULL : TextDatumGetCString(values[4]));
		target->partitions = isnull[5] ? 0 : DatumGetInt32(values[5]);
		break;
	}
	row_scan_end(&scan);
}

/* Makes the XADD that adds a message to its stream. */
static StringInfo
make_command(const Message *message, const Target *target)
{
	StringInfo	command = makeStringInfo();

	resp_put_array(command, (target->maxlen > 0 ? 6 : 3) + entry_count_fields(message, target->format));
	resp_put_string(command, "XADD");
	write_stream(message, target, command);
	if (target->maxlen > 0)
	{
		resp_put_string(command, "MAXLEN");
		resp_put_string(command, "~");
		resp_put_number(command, target->maxlen);
	}
	resp_put_string(command, "*");
	entry_write(message, target->format, ENTRY_BOTH, add_to_command, command);
	return command;
}

/* Writes the key of the stream, or of the partition that the message belongs to. */
static void
write_stream(const Message *message, const Target *target, StringInfo command)
{
	StringInfoData stream;

	if (target->partitions == 0)
	{
		field_write_text(target->stream, add_to_command, command);
		return;
	}
	initStringInfo(&stream);
	partition_write_stream(target->stream, partition_of(message, target->partitions), &stream);
	field_write_utf8(stream.data, stream.len, add_to_command, command);
}

/* An EntrySink. */
static void
add_to_command(const char *bytes, size_t size, void *arg)
{
	resp_put(arg, bytes, size);
}

/* Returns the id of the entry; NULL if that failed; see redis_cluster_error(). */
static char *
add_entry(RedisCluster *redis, StringInfo command)
{
	redisReply *reply = redis_cluster_command(redis, command->data, command->len);
	char		entry[64] = "";

	if (reply == NULL)
		return NULL;
	if (reply->type == REDIS_REPLY_STRING && reply->len < sizeof(entry) &&
		strspn(reply->str, "0123456789-") == reply->len)
		strlcpy(entry, reply->str, sizeof(entry));
	else
		redis_cluster_fail_with_reply(redis, reply, "the message was not added");
	freeReplyObject(reply);
	return entry[0] ? pstrdup(entry) : NULL;
}

/* A LinkAttend. */
static void
check_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
}
