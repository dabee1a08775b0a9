/*
 * capture_triggers.c
 *		outbox_capture() and outbox_uncapture(): the triggers of a captured table.
 *
 * Called by SQL. They create and drop triggers with the privileges of the caller,
 * who needs what CREATE TRIGGER and DROP TRIGGER need. There is one trigger for
 * each kind of event, so that each may have a condition of its own; what is
 * done with a change is in capture_change.c.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "src/api/arguments.h"
#include "src/trigger/column_expression.h"
#include "src/trigger/trigger_check.h"

/* Arguments of outbox_capture(). */
enum
{
	ARG_CAPTURE_RELATION,
	ARG_CAPTURE_DEST,
	ARG_CAPTURE_EVENTS,
	ARG_CAPTURE_COLUMNS,
	ARG_CAPTURE_KEY,
	ARG_CAPTURE_CONDITION,
	ARG_CAPTURE_BEFORE
};

/*
 * What the names of the triggers begin with. Those of one event fire in the order of their
 * names: a trigger that fires before ours and changes the row again would have that change
 * sent before the first one.
 */
#define NAME_PREFIX		"0_outbox_capture_"

static const char *const events[] = {"insert", "update", "delete", "truncate"};

static Oid	argument_relation(FunctionCallInfo fcinfo);
static List *argument_list(FunctionCallInfo fcinfo, int arg, const char *what);
static const char *find_event(const char *name);
static void create_trigger(FunctionCallInfo fcinfo, Oid table, const char *event, const char *arguments);
static char firing_of(Oid table, const char *name);
static void set_firing(Oid table, const char *name, char firing);
static char *argument_condition(FunctionCallInfo fcinfo);
static void name_condition(void *arg);
static char *trigger_arguments(FunctionCallInfo fcinfo);
static void append_names(StringInfo options, const char *what, List *names);
static char *qualified_name(Oid table);
static void execute(const char *sql);

PG_FUNCTION_INFO_V1(outbox_capture_table);
PG_FUNCTION_INFO_V1(outbox_uncapture);

/*
 * outbox_capture(relation, dest, events, columns, key, condition, before): creates
 * the triggers, or replaces those of the same events.
 */
Datum
outbox_capture_table(PG_FUNCTION_ARGS)
{
	Oid			table = argument_relation(fcinfo);
	List	   *names = argument_list(fcinfo, ARG_CAPTURE_EVENTS, "events");
	char	   *arguments = trigger_arguments(fcinfo);
	ListCell   *name;

	if (names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("events must not be null")));
	foreach(name, names)
		(void) find_event(lfirst(name));
	SPI_connect();
	foreach(name, names)
		create_trigger(fcinfo, table, find_event(lfirst(name)), arguments);
	SPI_finish();
	PG_RETURN_VOID();
}

/* outbox_uncapture(relation): drops the triggers; returns false if there was none. */
Datum
outbox_uncapture(PG_FUNCTION_ARGS)
{
	Oid			oid = argument_relation(fcinfo);
	Relation	table = table_open(oid, AccessShareLock);
	TriggerDesc *triggers = CopyTriggerDesc(table->trigdesc);	/* an invalidation frees
																 * the other */
	List	   *names = NIL;
	ListCell   *name;

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		if (trigger_check_is_capture(triggers->triggers[i].tgfoid))
			names = lappend(names, pstrdup(triggers->triggers[i].tgname));
	}
	table_close(table, AccessShareLock);
	SPI_connect();
	foreach(name, names)
		execute(psprintf("DROP TRIGGER %s ON %s", quote_identifier(lfirst(name)), qualified_name(oid)));
	SPI_finish();
	PG_RETURN_BOOL(names != NIL);
}

/* Returns the table that the first argument names. */
static Oid
argument_relation(FunctionCallInfo fcinfo)
{
	Oid			table;

	if (PG_ARGISNULL(ARG_CAPTURE_RELATION))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("relation must not be null")));
	table = PG_GETARG_OID(ARG_CAPTURE_RELATION);
	if (get_rel_name(table) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", table)));
	return table;
}

/* Returns the names in an argument; NIL only if it is NULL. */
static List *
argument_list(FunctionCallInfo fcinfo, int arg, const char *what)
{
	List	   *names = argument_names(fcinfo, arg, what);

	if (names == NIL && !PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what)));
	return names;
}

/* Returns a kind of event as it is written in SQL. */
static const char *
find_event(const char *name)
{
	for (int i = 0; i < lengthof(events); i++)
	{
		if (strcmp(events[i], name) == 0)
			return events[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid event: \"%s\"", name),
			 errhint("Use \"insert\", \"update\", \"delete\" or \"truncate\".")));
	return NULL;				/* not reached */
}

/*
 * Creates or replaces the trigger for one kind of event, and checks it. One that replaces
 * another fires when that did, in each partition: PostgreSQL would have it fire in ordinary
 * sessions only, and changes that logical replication applies would be sent no more.
 */
static void
create_trigger(FunctionCallInfo fcinfo, Oid table, const char *event, const char *arguments)
{
	bool		is_truncate = strcmp(event, "truncate") == 0;
	char	   *name = psprintf(NAME_PREFIX "%s", event);
	List	   *tables;
	List	   *firing = NIL;
	ListCell   *cell;
	ListCell   *before;
	StringInfoData sql;

	/* A table before its partitions, as PostgreSQL locks them. */
	LockRelationOid(table, AccessShareLock);
	tables = find_all_inheritors(table, AccessShareLock, NULL);
	foreach(cell, tables)
		firing = lappend_int(firing, firing_of(lfirst_oid(cell), name));
	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE OR REPLACE TRIGGER %s AFTER %s ON %s FOR EACH %s",
					 quote_identifier(name), event, qualified_name(table), is_truncate ? "STATEMENT" : "ROW");
	if (!is_truncate && !PG_ARGISNULL(ARG_CAPTURE_CONDITION))
		appendStringInfo(&sql, " WHEN (%s)", argument_condition(fcinfo));
	appendStringInfo(&sql, " EXECUTE FUNCTION %s.outbox_capture(%s)",
					 quote_identifier(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid))), arguments);
	execute(sql.data);
	forboth(cell, tables, before, firing)
		set_firing(lfirst_oid(cell), name, (char) lfirst_int(before));
	trigger_check(table, name);
}

/* Returns when a trigger fires, as pg_trigger has it; '\0' if there is none. */
static char
firing_of(Oid table, const char *name)
{
	Relation	relation = table_open(table, AccessShareLock);
	TriggerDesc *triggers = relation->trigdesc;
	char		firing = '\0';

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		if (strcmp(triggers->triggers[i].tgname, name) == 0)
			firing = triggers->triggers[i].tgenabled;
	}
	table_close(relation, NoLock);
	return firing;
}

/*
 * Has a trigger fire as another one did, unless there was none, or it did not fire at all. A table
 * comes before its partitions, to which PostgreSQL passes on what is set.
 */
static void
set_firing(Oid table, const char *name, char firing)
{
	if (firing == '\0' || firing == TRIGGER_DISABLED || firing == firing_of(table, name))
		return;
	execute(psprintf("ALTER TABLE %s ENABLE %s TRIGGER %s", qualified_name(table),
					 firing == TRIGGER_FIRES_ALWAYS ? "ALWAYS" : firing == TRIGGER_FIRES_ON_REPLICA ? "REPLICA" : "",
					 quote_identifier(name)));
}

/* Returns the condition. It becomes part of a command, so it must be an expression and nothing else. */
static char *
argument_condition(FunctionCallInfo fcinfo)
{
	char	   *condition = text_to_cstring(PG_GETARG_TEXT_PP(ARG_CAPTURE_CONDITION));
	ErrorContextCallback context = {error_context_stack, name_condition, condition};

	error_context_stack = &context;
	(void) column_expression_parse(condition);
	error_context_stack = context.previous;
	return condition;
}

/* An error context callback: the position of an error is not one in the statement of the caller. */
static void
name_condition(void *arg)
{
	if (geterrposition() > 0)
		errposition(0);
	errcontext("condition \"%s\"", (const char *) arg);
}

/* Returns the arguments of the triggers, as SQL. */
static char *
trigger_arguments(FunctionCallInfo fcinfo)
{
	char	   *dest = text_to_cstring(argument_dest(fcinfo, ARG_CAPTURE_DEST));
	bool		before = PG_ARGISNULL(ARG_CAPTURE_BEFORE) || PG_GETARG_BOOL(ARG_CAPTURE_BEFORE);
	StringInfoData options;

	initStringInfo(&options);
	appendStringInfo(&options, "{\"before\": %s", before ? "true" : "false");
	append_names(&options, "columns", argument_list(fcinfo, ARG_CAPTURE_COLUMNS, "columns"));
	append_names(&options, "key", argument_list(fcinfo, ARG_CAPTURE_KEY, "key"));
	appendStringInfoChar(&options, '}');
	return psprintf("%s, %s", quote_literal_cstr(dest), quote_literal_cstr(options.data));
}

/* Appends a list of names of columns as a member of an object. */
static void
append_names(StringInfo options, const char *what, List *names)
{
	ListCell   *name;

	if (names == NIL)
		return;
	appendStringInfo(options, ", \"%s\": [", what);
	foreach(name, names)
	{
		if (foreach_current_index(name) > 0)
			appendStringInfoString(options, ", ");
		escape_json(options, lfirst(name));
	}
	appendStringInfoChar(options, ']');
}

/* Returns the name of a table, as SQL. */
static char *
qualified_name(Oid table)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table));
}

/* Executes a command. */
static void
execute(const char *sql)
{
	int			result = SPI_execute(sql, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(result));
}
