/*
 * capture_change.c
 *		The trigger function outbox_capture(): changes of a table become messages.
 *
 *	 outbox_capture('orders', '{"columns": ["id", "state"], "before": false}')
 *
 * Called for each row that was inserted, updated or deleted, and for each
 * TRUNCATE, as part of the same transaction. The first argument is the
 * destination; the second, which may be missing, is an object with the names of
 * the columns, those of the key, and whether the row as it was before is sent.
 * outbox_capture(relation, ...) in capture_triggers.c creates such triggers.
 *
 * The body is
 *
 *	 {"op": "update", "schema": ..., "table": ..., "key": {...}, "before": {...}, "after": {...}}
 *
 * It must cost little more than outbox_enqueue() of the same body: see
 * trigger_plan.c and column_json.c.
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/api/enqueue.h"
#include "src/api/message_id.h"
#include "src/compat.h"
#include "src/limits.h"
#include "src/trigger/capture_change.h"
#include "src/trigger/column_json.h"
#include "src/trigger/trigger_plan.h"

/* What a trigger that calls outbox_capture() does with a change. */
typedef struct CapturePlan
{
	text	   *dest;
	char	   *table;			/* the members that name the table */
	ColumnJson *row;
	ColumnJson *key;			/* or NULL */
	bool		before;
} CapturePlan;

static void check_trigger(const Trigger *trigger);
static void read_options(CapturePlan *plan, Relation table, const char *options, List **columns, List **key);
static List *read_names(const JsonbValue *names, const char *options);
static char *name_table(Relation table, const Trigger *trigger, List **others);
static bool has_changed(const CapturePlan *plan, const TriggerData *call);
static void write_body(CapturePlan *plan, const TriggerData *call, StringInfo body);
static text *key_of(const CapturePlan *plan, const TriggerData *call);
static void write_row(const char *label, ColumnJson *json, TupleTableSlot *row, StringInfo body);
static const char *op_of(TriggerEvent event);
pg_noreturn static void refuse_argument(const char *argument, const char *detail);

PG_FUNCTION_INFO_V1(outbox_capture_change);

/* Trigger: sends a message about a change. */
Datum
outbox_capture_change(PG_FUNCTION_ARGS)
{
	TriggerData *call = trigger_plan_call(fcinfo, "outbox_capture");
	ErrorContextCallback context = {error_context_stack, trigger_plan_context, call};
	CapturePlan *plan;
	StringInfoData body;
	Message		message = {0};

	error_context_stack = &context;
	caller_check_can_store("outbox_capture()");
	plan = trigger_plan_get(call, capture_change_plan);
	if (has_changed(plan, call))
	{
		initStringInfo(&body);
		appendStringInfoSpaces(&body, VARHDRSZ);
		write_body(plan, call, &body);
		SET_VARSIZE(body.data, body.len);
		message.dest = plan->dest;
		message.body = argument_body(TEXTOID, PointerGetDatum(body.data));
		message_id_make(&message);
		message.partition_key = key_of(plan, call);
		enqueue_message(&message);
	}
	error_context_stack = context.previous;
	return PointerGetDatum(NULL);
}

/* A TriggerPlanner. */
void *
capture_change_plan(Relation table, const Trigger *trigger, List **others)
{
	CapturePlan *plan = palloc0(sizeof(CapturePlan));
	List	   *columns = NIL;
	List	   *key = NIL;

	check_trigger(trigger);
	trigger_plan_refuse_own_table(table);
	if (trigger->tgnargs < 1 || trigger->tgnargs > 2)
		refuse_argument(trigger->tgnargs == 0 ? "" : trigger->tgargs[2], "One or two arguments are allowed.");
	plan->dest = argument_check_dest(cstring_to_text(trigger->tgargs[0]));
	plan->before = true;
	if (trigger->tgnargs == 2)
		read_options(plan, table, trigger->tgargs[1], &columns, &key);
	plan->table = name_table(table, trigger, others);
	plan->row = column_json_make(table, columns);
	plan->key = key ? column_json_make(table, key) : column_json_make_of_primary_key(table);
	return plan;
}

/* Raises an error if the trigger does not fire after a row was changed, or after TRUNCATE. */
static void
check_trigger(const Trigger *trigger)
{
	int16		type = trigger->tgtype;

	if (!TRIGGER_FOR_AFTER(type) ||
		(!TRIGGER_FOR_ROW(type) && (type & TRIGGER_TYPE_EVENT_MASK) != TRIGGER_TYPE_TRUNCATE))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER INSERT, UPDATE or DELETE FOR EACH ROW, or AFTER TRUNCATE FOR EACH STATEMENT",
						"outbox_capture")));
}

/* Reads the second argument. */
static void
read_options(CapturePlan *plan, Relation table, const char *options, List **columns, List **key)
{
	Jsonb	   *object = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(options)));
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	value;

	if (!JB_ROOT_IS_OBJECT(object))
		refuse_argument(options, "It is not an object.");
	iterator = JsonbIteratorInit(&object->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		char	   *option = pnstrdup(name.val.string.val, name.val.string.len);
		bool		is_list;

		(void) JsonbIteratorNext(&iterator, &value, true);
		is_list = value.type == jbvBinary && JsonContainerIsArray(value.val.binary.data);
		if (strcmp(option, "columns") == 0 && is_list)
			*columns = read_names(&value, options);
		else if (strcmp(option, "key") == 0 && is_list)
			*key = read_names(&value, options);
		else if (strcmp(option, "before") == 0 && value.type == jbvBool)
			plan->before = value.val.boolean;
		else
			refuse_argument(options, psprintf("Its member \"%s\" is unknown, or has a value of the wrong type.", option));
	}
}

/* Reads an array of names of columns. */
static List *
read_names(const JsonbValue *names, const char *options)
{
	List	   *list = NIL;

	if (JsonContainerSize(names->val.binary.data) == 0)
		refuse_argument(options, "A list of columns is empty.");
	for (uint32 i = 0; i < JsonContainerSize(names->val.binary.data); i++)
	{
		JsonbValue *name = getIthJsonbValueFromContainer(names->val.binary.data, i);

		if (name->type != jbvString)
			refuse_argument(options, "The name of a column is not a string.");
		list = lappend(list, pnstrdup(name->val.string.val, name->val.string.len));
	}
	return list;
}

/*
 * Returns the members that name the table. A partition has the name of the table
 * that was captured: the topmost one that has this trigger.
 */
static char *
name_table(Relation table, const Trigger *trigger, List **others)
{
	Oid			captured = RelationGetRelid(table);
	StringInfoData members;
	ListCell   *ancestor;

	if (trigger->tgisclone)
	{
		foreach(ancestor, get_partition_ancestors(captured))
		{
			if (OidIsValid(get_trigger_oid(lfirst_oid(ancestor), trigger->tgname, true)))
				captured = lfirst_oid(ancestor);
		}
		if (others)
			*others = lappend_oid(*others, captured);
	}
	initStringInfo(&members);
	appendStringInfoString(&members, "\",\"schema\":");
	escape_json(&members, get_namespace_name(get_rel_namespace(captured)));
	appendStringInfoString(&members, ",\"table\":");
	escape_json(&members, get_rel_name(captured));
	return members.data;
}

/* Check whether there is something to send: an UPDATE may leave all captured columns as they were. */
static bool
has_changed(const CapturePlan *plan, const TriggerData *call)
{
	return !TRIGGER_FIRED_BY_UPDATE(call->tg_event) ||
		column_json_differs(plan->row, call->tg_trigslot, call->tg_newslot);
}

/* Writes the body. The key is that of the row before the change, if there was one. */
static void
write_body(CapturePlan *plan, const TriggerData *call, StringInfo body)
{
	TriggerEvent event = call->tg_event;
	TupleTableSlot *before = TRIGGER_FIRED_BY_INSERT(event) ? NULL : call->tg_trigslot;
	TupleTableSlot *after = TRIGGER_FIRED_BY_INSERT(event) ? call->tg_trigslot : call->tg_newslot;

	appendStringInfoString(body, "{\"op\":\"");
	appendStringInfoString(body, op_of(event));
	appendStringInfoString(body, plan->table);
	if (TRIGGER_FIRED_FOR_ROW(event))
	{
		if (plan->key)
			write_row(",\"key\":", plan->key, before ? before : after, body);
		if (before && plan->before)
			write_row(",\"before\":", plan->row, before, body);
		if (!TRIGGER_FIRED_BY_DELETE(event))
			write_row(",\"after\":", plan->row, after, body);
	}
	appendStringInfoChar(body, '}');
}

/*
 * Returns the key whose messages stay in order: that of the row before the change,
 * if there was one. NULL if the table has none, and for TRUNCATE.
 */
static text *
key_of(const CapturePlan *plan, const TriggerData *call)
{
	if (plan->key == NULL || !TRIGGER_FIRED_FOR_ROW(call->tg_event))
		return NULL;
	return column_json_to_text(plan->key, call->tg_trigslot, MAX_NAME_BYTES);
}

/* Writes a row as a member of the body. */
static void
write_row(const char *label, ColumnJson *json, TupleTableSlot *row, StringInfo body)
{
	appendStringInfoString(body, label);
	column_json_write(json, row, body);
}

/* Returns the name of what has happened. */
static const char *
op_of(TriggerEvent event)
{
	if (TRIGGER_FIRED_BY_INSERT(event))
		return "insert";
	if (TRIGGER_FIRED_BY_UPDATE(event))
		return "update";
	return TRIGGER_FIRED_BY_DELETE(event) ? "delete" : "truncate";
}

/* Raises an error about an argument of the trigger. */
static void
refuse_argument(const char *argument, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid argument of outbox_capture(): \"%s\"", argument),
			 errdetail_internal("%s", detail),
			 errhint("The first argument is the destination, the second one an object: "
					 "{\"columns\": [...], \"key\": [...], \"before\": false}.")));
}
