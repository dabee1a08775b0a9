/*
 * forward.c
 *		outbox_forward(): rows of an existing outbox table become messages.
 *
 * A trigger function, called for each row that is inserted, in the order of the
 * rows. The message is part of the same transaction. What the columns of the
 * table mean is in the trigger's arguments (forward_plan.c).
 *
 * The row itself is not needed from then on. It stays, to be deleted by something
 * else, unless the argument keep is false: then an AFTER trigger deletes the row
 * at once, so that no other transaction ever sees it, and a BEFORE trigger keeps it
 * from being stored.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/api/enqueue.h"
#include "src/api/message_id.h"
#include "src/compat.h"
#include "src/stream/headers.h"
#include "src/trigger/forward.h"
#include "src/trigger/key_settings.h"
#include "src/trigger/nservicebus.h"
#include "src/trigger/trigger_plan.h"

static void forward_row(ForwardPlan *plan, TupleTableSlot *row);
static void forward_operations(ForwardPlan *plan, TupleTableSlot *row);
static text *read_key(ForwardPlan *plan, TupleTableSlot *row);
static void enqueue_checked(Message *message);
static Jsonb *read_headers(ForwardPlan *plan, TupleTableSlot *row);
static void push_header(char *name, text *value, JsonbParseState **state);
static bool push_object(Jsonb *object, JsonbParseState **state);
static Jsonb *read_json(ColumnExpression *value, TupleTableSlot *row);
static bool is_kept(const ForwardPlan *plan, TupleTableSlot *row);
static void delete_row(Relation table, TupleTableSlot *row);
static bool find_newest(Relation table, const ItemPointerData *version, TupleTableSlot *found);
static bool is_of_this_command(TupleTableSlot *row);

PG_FUNCTION_INFO_V1(outbox_forward);

/* Trigger: sends a row as a message. */
Datum
outbox_forward(PG_FUNCTION_ARGS)
{
	TriggerData *call = trigger_plan_call(fcinfo, "outbox_forward");
	ErrorContextCallback context = {error_context_stack, trigger_plan_context, call};
	ForwardPlan *plan;
	TupleTableSlot *row;
	bool		kept;

	error_context_stack = &context;
	caller_check_can_store("outbox_forward()");
	plan = trigger_plan_get(call, forward_plan_make);
	row = TRIGGER_FIRED_BY_UPDATE(call->tg_event) ? call->tg_newslot : call->tg_trigslot;
	kept = is_kept(plan, row);
	if (plan->operations)
		forward_operations(plan, row);
	else
		forward_row(plan, row);
	if (!kept && TRIGGER_FIRED_AFTER(call->tg_event))
		delete_row(call->tg_relation, row);
	error_context_stack = context.previous;
	return PointerGetDatum(kept ? call->tg_trigtuple : NULL);
}

/* Sends a row that is one message. An empty body may be NULL. */
static void
forward_row(ForwardPlan *plan, TupleTableSlot *row)
{
	Message		message = {.dest = column_expression_text(plan->dest, row)};
	bool		isnull;
	Datum		value = column_expression_evaluate(plan->body, row, &isnull);

	if (isnull)
		message.body = (bytea *) cstring_to_text("");
	else if (plan->body->type == BYTEAOID || plan->body->type == JSONBOID || plan->body->type == TEXTOID)
		message.body = argument_body(plan->body->type, value);
	else
		message.body = argument_body(TEXTOID, PointerGetDatum(column_expression_print(plan->body, value)));
	message.message_id = plan->id ? column_expression_text(plan->id, row) : NULL;
	message.partition_key = read_key(plan, row);
	message.headers = read_headers(plan, row);
	if (plan->deliver_at)
	{
		value = column_expression_evaluate(plan->deliver_at, row, &isnull);
		message.deliver_at = isnull ? 0 : DatumGetTimestampTz(value);
	}
	enqueue_checked(&message);
}

/* Sends a row that has any number of messages, each with headers of its own. */
static void
forward_operations(ForwardPlan *plan, TupleTableSlot *row)
{
	Jsonb	   *operations = read_json(plan->operations, row);
	Jsonb	   *more = read_headers(plan, row);

	if (operations == NULL)
		return;
	if (!JB_ROOT_IS_ARRAY(operations) || JB_ROOT_IS_SCALAR(operations))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("operations must be a JSON array")));
	for (int i = 0; i < JB_ROOT_COUNT(operations); i++)
	{
		Message		message = {.dest = plan->dest ? column_expression_text(plan->dest, row) : NULL};
		JsonbParseState *state = NULL;

		CHECK_FOR_INTERRUPTS();
		nservicebus_read_operation(operations, i, &message);
		message.partition_key = read_key(plan, row);
		(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		(void) push_object(message.headers, &state);
		(void) push_object(more, &state);
		message.headers = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
		enqueue_checked(&message);
	}
}

/*
 * Returns the key of a row, whatever the settings of the session are; NULL if that is NULL or
 * empty, as it may be in a table that was made for another outbox.
 */
static text *
read_key(ForwardPlan *plan, TupleTableSlot *row)
{
	text	   *key;
	bool		has_settings;
	int			nest_level = 0;

	if (plan->key == NULL)
		return NULL;
	has_settings = plan->key->column <= 0 || key_settings_matter(plan->key->type);
	if (has_settings)
		nest_level = key_settings_take();
	key = column_expression_text(plan->key, row);
	if (has_settings)
		key_settings_return(nest_level);
	return key && VARSIZE_ANY_EXHDR(key) > 0 ? key : NULL;
}

/* Checks what outbox_enqueue() would, and writes the message. */
static void
enqueue_checked(Message *message)
{
	if (message->dest == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("dest must not be null")));
	message->dest = argument_check_dest(message->dest);
	if (message->message_id)
		message->message_id = argument_check_name(message->message_id, "message_id");
	else
		message_id_make(message);
	message->deliver_at = argument_check_deliver_at(message->deliver_at);
	if (message->partition_key)
		message->partition_key = argument_check_name(message->partition_key, "key");
	if (message->headers && JB_ROOT_COUNT(message->headers) == 0)
		message->headers = NULL;
	if (message->headers)
		message->headers = headers_check(message->headers);
	enqueue_message(message);
}

/* Makes the headers of a row: an object, and single ones, which count more. NULL if there are none. */
static Jsonb *
read_headers(ForwardPlan *plan, TupleTableSlot *row)
{
	JsonbParseState *state = NULL;

	if (plan->headers == NULL && plan->nsingle == 0)
		return NULL;
	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	if (plan->headers && !push_object(read_json(plan->headers, row), &state))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("headers must be a JSON object")));
	for (int i = 0; i < plan->nsingle; i++)
	{
		text	   *value = column_expression_text(plan->singles[i], row);

		if (value)
			push_header(plan->single_names[i], value, &state);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* Adds one header. */
static void
push_header(char *name, text *value, JsonbParseState **state)
{
	JsonbValue	string = {.type = jbvString};

	string.val.string.val = name;
	string.val.string.len = strlen(name);
	(void) pushJsonbValue(state, WJB_KEY, &string);
	string.val.string.val = VARDATA_ANY(value);
	string.val.string.len = VARSIZE_ANY_EXHDR(value);
	(void) pushJsonbValue(state, WJB_VALUE, &string);
}

/*
 * Adds the members of an object as headers: one that is null is none, and one
 * that has members of its own is its text. Returns false if it is no object.
 */
static bool
push_object(Jsonb *object, JsonbParseState **state)
{
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	value;

	if (object == NULL)
		return true;
	if (!JB_ROOT_IS_OBJECT(object))
		return false;
	iterator = JsonbIteratorInit(&object->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (value.type == jbvNull)
			continue;
		if (value.type == jbvBinary)
		{
			char	   *printed = JsonbToCString(NULL, value.val.binary.data, value.val.binary.len);

			value.type = jbvString;
			value.val.string.len = strlen(printed);
			value.val.string.val = printed;
		}
		(void) pushJsonbValue(state, WJB_KEY, &name);
		(void) pushJsonbValue(state, WJB_VALUE, &value);
	}
	return true;
}

/* Returns a value of any type that is JSON, or text that is to be JSON; NULL if it is NULL, or empty text. */
static Jsonb *
read_json(ColumnExpression *value, TupleTableSlot *row)
{
	bool		isnull;
	Datum		datum = column_expression_evaluate(value, row, &isnull);
	text	   *printed;

	if (isnull)
		return NULL;
	if (value->type == JSONBOID)
		return DatumGetJsonbP(datum);
	printed = column_expression_print(value, datum);
	if (VARSIZE_ANY_EXHDR(printed) == 0)
		return NULL;
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text_to_cstring(printed))));
}

/* Check whether the row is to stay. */
static bool
is_kept(const ForwardPlan *plan, TupleTableSlot *row)
{
	bool		isnull;
	Datum		keep;

	if (plan->keep == NULL)
		return true;
	keep = column_expression_evaluate(plan->keep, row, &isnull);
	return isnull || DatumGetBool(keep);
}

/*
 * Deletes a row that this transaction has written, without firing triggers. It may be
 * gone, or have been updated since: by a trigger that came before this one, or by another
 * statement, if this is a deferred constraint trigger. Then its newest version is deleted;
 * a row that went to another partition was inserted there, which fires the trigger again.
 * Raises the error of DELETE if subscribers could not tell which row is deleted.
 */
static void
delete_row(Relation table, TupleTableSlot *row)
{
	TupleTableSlot *found = table_slot_create(table, NULL);
	TM_FailureData failure;

	CheckCmdReplicaIdentity(table, CMD_DELETE);
	if (find_newest(table, &row->tts_tid, found))
	{
		if (is_of_this_command(found))
			CommandCounterIncrement();
		(void) table_tuple_delete(table, &found->tts_tid, GetCurrentCommandId(true), SnapshotAny, InvalidSnapshot,
								  true, &failure, false);
	}
	ExecDropSingleTupleTableSlot(found);
}

/* Fetches the newest version of a row. Returns false if the row is gone. */
static bool
find_newest(Relation table, const ItemPointerData *version, TupleTableSlot *found)
{
	ItemPointerData newest = *version;
	TableScanDesc scan;

	if (table_tuple_fetch_row_version(table, &newest, SnapshotSelf, found))
		return true;
	scan = table_beginscan_tid(table, SnapshotSelf);
	table_tuple_get_latest_tid(scan, &newest);
	table_endscan(scan);
	return table_tuple_fetch_row_version(table, &newest, SnapshotSelf, found);
}

/*
 * Check whether a row may have been written by the current command, which then cannot
 * delete it. The rows of one INSERT are all deleted by the command after it: a command for
 * each of them would have PostgreSQL remember each until the transaction ends.
 */
static bool
is_of_this_command(TupleTableSlot *row)
{
	HeapTupleHeader header;

	if (!TTS_IS_BUFFERTUPLE(row))
		return true;
	header = ((BufferHeapTupleTableSlot *) row)->base.tuple->t_data;

	/* What COPY has frozen tells neither its transaction nor its command. */
	return !HeapTupleHeaderXminCommitted(header) && HeapTupleHeaderGetCmin(header) >= GetCurrentCommandId(false);
}
