/*
 * enqueue.c
 *		outbox_enqueue(): a message that is sent if the transaction commits.
 *
 * Checks what it is given, asks open_message.c for the incoming message that it
 * belongs to, and has it written to the log.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/api/enqueue.h"
#include "src/api/message_id.h"
#include "src/claim/open_message.h"
#include "src/log/log_id.h"
#include "src/stream/headers.h"

static Datum enqueue_body(FunctionCallInfo fcinfo, Oid body_type);

PG_FUNCTION_INFO_V1(outbox_enqueue_text);
PG_FUNCTION_INFO_V1(outbox_enqueue_json);
PG_FUNCTION_INFO_V1(outbox_enqueue_jsonb);
PG_FUNCTION_INFO_V1(outbox_enqueue_bytea);

/* outbox_enqueue(dest, body, headers, message_id, deliver_at, key); json as it was written */
Datum
outbox_enqueue_text(PG_FUNCTION_ARGS)
{
	return enqueue_body(fcinfo, TEXTOID);
}

Datum
outbox_enqueue_json(PG_FUNCTION_ARGS)
{
	return enqueue_body(fcinfo, JSONOID);
}

Datum
outbox_enqueue_jsonb(PG_FUNCTION_ARGS)
{
	return enqueue_body(fcinfo, JSONBOID);
}

Datum
outbox_enqueue_bytea(PG_FUNCTION_ARGS)
{
	return enqueue_body(fcinfo, BYTEAOID);
}

/* Writes a message that has been checked, as one of the open record if there is one. */
void
enqueue_message(Message *message)
{
	const RecordName *record;

	log_size_check();
	headers_add_setting(message);
	message->at = GetCurrentTimestamp();
	if (message->deliver_at <= message->at)
		message->deliver_at = 0;
	record = open_message_add_outgoing();
	if (record)
	{
		message->has_key = true;
		message->key = record->key;
		message->is_of_default = strcmp(record->endpoint, DEFAULT_ENDPOINT) == 0;
		message->cause = cstring_to_text(record->msgid);
	}
	message->id = log_id_next();
	log_append(message);
}

/* Enqueues a message whose body is of a type, and returns its id. */
static Datum
enqueue_body(FunctionCallInfo fcinfo, Oid body_type)
{
	Message		message;

	caller_check_can_store("outbox_enqueue()");
	argument_message(fcinfo, body_type, &message);
	message_id_take(fcinfo, &message);
	message.deliver_at = argument_deliver_at(fcinfo);
	message.partition_key = argument_key(fcinfo, ARG_KEY);
	enqueue_message(&message);
	PG_RETURN_TEXT_P(message.message_id);
}
