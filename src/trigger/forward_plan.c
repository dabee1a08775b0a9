/*
 * forward_plan.c
 *		Reads the arguments of a trigger that calls outbox_forward().
 *
 *	 outbox_forward('debezium', 'dest=''orders''')
 *
 * An argument is the name of a shape, which says what the columns of a
 * well-known table mean; or a part of the message and, behind the equals sign,
 * an SQL expression for it. What is said so counts more than the shape.
 *
 * Called by forward.c when a row is inserted and nothing is remembered of its
 * trigger, and by trigger_check.c when the trigger is created.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "src/api/arguments.h"
#include "src/compat.h"
#include "src/stream/headers.h"
#include "src/trigger/forward.h"
#include "src/trigger/trigger_plan.h"

#define HEADER_PREFIX	"header."

/* The parts of a message that an expression may be given for. */
typedef struct Part
{
	const char *name;
	Oid			type;			/* InvalidOid = any */
	size_t		offset;			/* in ForwardPlan */
} Part;

static const Part parts[] = {
	{"dest", InvalidOid, offsetof(ForwardPlan, dest)},
	{"body", InvalidOid, offsetof(ForwardPlan, body)},
	{"id", InvalidOid, offsetof(ForwardPlan, id)},
	{"headers", InvalidOid, offsetof(ForwardPlan, headers)},
	{"deliver_at", TIMESTAMPTZOID, offsetof(ForwardPlan, deliver_at)},
	{"key", InvalidOid, offsetof(ForwardPlan, key)},
	{"keep", BOOLOID, offsetof(ForwardPlan, keep)},
	{"operations", InvalidOid, offsetof(ForwardPlan, operations)}
};

/* What the columns of well-known tables mean. */
typedef struct Shape
{
	const char *name;
	const char *arguments[8];
} Shape;

static const Shape shapes[] = {
	{"debezium", {
			"dest='outbox.event.' || aggregatetype", "body=payload", "id=id", "key=aggregateid", "header.type=type"
	}},
	{"masstransit", {
			"dest=\"DestinationAddress\"", "body=\"Body\"", "id=\"MessageId\"", "headers=\"Headers\"", "deliver_at=\"EnqueueTime\"",
			"header.content_type=\"ContentType\"", "header.correlation_id=\"CorrelationId\"", "header.conversation_id=\"ConversationId\""
	}},
	{"cap", {
			"dest=\"Name\"", "body=\"Content\"::json -> 'Value'", "id=\"Id\"", "headers=\"Content\"::json -> 'Headers'"
	}},
	{"nservicebus", {"operations=\"Operations\""}}
};

static void check_trigger(const Trigger *trigger);
static ColumnExpression **part_of(ForwardPlan *plan, const Part *part);
static void read_argument(ForwardPlan *plan, Relation table, const char *argument, bool is_default);
static void read_shape(ForwardPlan *plan, Relation table, const char *name);
static void read_header(ForwardPlan *plan, Relation table, const char *name, const char *sql, bool is_default);
static void check_plan(const ForwardPlan *plan, Relation table, const Trigger *trigger);
static void check_dest(ColumnExpression *dest);
static void check_deletes(Relation table);
static void prepare_value(ColumnExpression *value, Relation table, const Trigger *trigger, List **others);
pg_noreturn static void refuse_argument(const char *argument);

/* A TriggerPlanner. */
void *
forward_plan_make(Relation table, const Trigger *trigger, List **others)
{
	ForwardPlan *plan = palloc0(sizeof(ForwardPlan));

	check_trigger(trigger);
	trigger_plan_refuse_own_table(table);
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		if (strchr(trigger->tgargs[i], '='))
			read_argument(plan, table, trigger->tgargs[i], false);
	}
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		if (!strchr(trigger->tgargs[i], '='))
			read_shape(plan, table, trigger->tgargs[i]);
	}
	check_plan(plan, table, trigger);
	check_dest(plan->dest);
	if (plan->keep && TRIGGER_FOR_AFTER(trigger->tgtype))
		check_deletes(table);
	for (int i = 0; i < lengthof(parts); i++)
		prepare_value(*part_of(plan, &parts[i]), table, trigger, others);
	for (int i = 0; i < plan->nsingle; i++)
		prepare_value(plan->singles[i], table, trigger, others);
	return plan;
}

/* Raises an error if the trigger fires on something else than new contents of a row. */
static void
check_trigger(const Trigger *trigger)
{
	int16		type = trigger->tgtype;

	if (!TRIGGER_FOR_ROW(type) || TRIGGER_FOR_DELETE(type) || TRIGGER_FOR_INSTEAD(type) ||
		(TRIGGER_FOR_BEFORE(type) && TRIGGER_FOR_UPDATE(type)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER INSERT or UPDATE, or BEFORE INSERT, FOR EACH ROW",
						"outbox_forward")));
}

/* Returns where a plan has a part. */
static ColumnExpression **
part_of(ForwardPlan *plan, const Part *part)
{
	return (ColumnExpression **) ((char *) plan + part->offset);
}

/* Reads a part of the message and its expression; as a default only if it was not given. */
static void
read_argument(ForwardPlan *plan, Relation table, const char *argument, bool is_default)
{
	const char *sql = strchr(argument, '=') + 1;
	char	   *name = pnstrdup(argument, sql - 1 - argument);

	if (strncmp(name, HEADER_PREFIX, strlen(HEADER_PREFIX)) == 0)
	{
		read_header(plan, table, name + strlen(HEADER_PREFIX), sql, is_default);
		return;
	}
	for (int i = 0; i < lengthof(parts); i++)
	{
		ColumnExpression **value = part_of(plan, &parts[i]);

		if (strcmp(parts[i].name, name) != 0)
			continue;
		if (*value == NULL)
			*value = column_expression_make(table, sql, parts[i].type);
		else if (!is_default)
			refuse_argument(argument);
		return;
	}
	refuse_argument(argument);
}

/* Reads what a shape says. */
static void
read_shape(ForwardPlan *plan, Relation table, const char *name)
{
	for (int i = 0; i < lengthof(shapes); i++)
	{
		if (strcmp(shapes[i].name, name) != 0)
			continue;
		for (int n = 0; n < lengthof(shapes[i].arguments) && shapes[i].arguments[n]; n++)
			read_argument(plan, table, shapes[i].arguments[n], true);
		return;
	}
	refuse_argument(name);
}

/* Reads a header of its own. */
static void
read_header(ForwardPlan *plan, Relation table, const char *name, const char *sql, bool is_default)
{
	for (int i = 0; i < plan->nsingle; i++)
	{
		if (strcmp(plan->single_names[i], name) != 0)
			continue;
		if (!is_default)
			refuse_argument(psprintf(HEADER_PREFIX "%s=%s", name, sql));
		return;
	}
	headers_check_name(name);
	if (plan->nsingle == 0)
	{
		plan->single_names = palloc(FUNC_MAX_ARGS * sizeof(char *));
		plan->singles = palloc(FUNC_MAX_ARGS * sizeof(ColumnExpression *));
	}
	if (plan->nsingle == FUNC_MAX_ARGS)
		refuse_argument(psprintf(HEADER_PREFIX "%s=%s", name, sql));
	plan->single_names[plan->nsingle] = pstrdup(name);
	plan->singles[plan->nsingle++] = column_expression_make(table, sql, InvalidOid);
}

/* Raises an error if something is missing. */
static void
check_plan(const ForwardPlan *plan, Relation table, const Trigger *trigger)
{
	if (plan->operations == NULL && (plan->dest == NULL || plan->body == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("outbox_forward() requires a dest and a body"),
				 errhint("Name a shape, or give both, as in outbox_forward('dest=topic', 'body=payload') for columns of these names.")));
	if (plan->operations && (plan->body || plan->id || plan->deliver_at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("outbox_forward() does not accept a body, id or deliver_at together with operations"),
				 errdetail("Each operation has its own.")));
	if (TRIGGER_FOR_BEFORE(trigger->tgtype) && plan->keep == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("outbox_forward() requires the argument keep in a BEFORE trigger"),
				 errdetail("A row that it sends is not stored unless keep is true."),
				 errhint("Add the argument 'keep=false', or create an AFTER trigger.")));
	if (!TRIGGER_FOR_BEFORE(trigger->tgtype) && plan->keep && table->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("outbox_forward() cannot delete rows of foreign table \"%s\"", RelationGetRelationName(table)),
				 errhint("Leave out the argument keep, or create a BEFORE trigger.")));
}

/* Raises an error if all rows go to one destination, which cannot be one. */
static void
check_dest(ColumnExpression *dest)
{
	text	   *name = dest && IsA(dest->expression, Const) ? column_expression_text(dest, NULL) : NULL;

	if (name)
		(void) argument_check_dest(name);
}

/*
 * Raises an error if rows of a table cannot be deleted as delete_row() does, without
 * looking after foreign keys that refer to them.
 */
static void
check_deletes(Relation table)
{
	TriggerDesc *triggers = table->trigdesc;

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		if (RI_FKey_trigger_type(triggers->triggers[i].tgfoid) == RI_TRIGGER_PK)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("outbox_forward() cannot delete rows of table \"%s\"", RelationGetRelationName(table)),
					 errdetail("A foreign key refers to it."),
					 errhint("Leave out the argument keep.")));
	}
}

/*
 * Raises an error if a value, which may be NULL, is not there when the trigger
 * fires. Prepares it, and adds to *others what it depends on, unless the trigger is only checked.
 */
static void
prepare_value(ColumnExpression *value, Relation table, const Trigger *trigger, List **others)
{
	if (value == NULL)
		return;
	if (TRIGGER_FOR_BEFORE(trigger->tgtype) && column_expression_is_generated(value, table))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("outbox_forward() cannot send generated columns in a BEFORE trigger"),
				 errdetail("They are computed after BEFORE triggers have fired.")));
	if (others == NULL)
		return;
	column_expression_plan(value);
	*others = list_concat_unique_oid(*others, value->depends);
}

/* Raises an error about an argument that has no meaning, or is given twice. */
static void
refuse_argument(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid argument of outbox_forward(): \"%s\"", argument),
			 errhint("Name a shape once (debezium, masstransit, cap or nservicebus), or give each part once as 'part=expression': "
					 "dest, body, id, headers, header.NAME, deliver_at, key, keep, operations.")));
}
