/*
 * trigger_check.c
 *		Checks a trigger when it is created: its table, and the arguments of one of ours.
 *
 * Called by the hook on utility commands, after CREATE TRIGGER, and by
 * outbox_capture(). PostgreSQL does not call a trigger function when a trigger
 * is created; without this check a wrong argument would show at the first row.
 * It still does so if the library is not preloaded, and if the table is
 * changed later.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "src/table/relations.h"
#include "src/trigger/capture_change.h"
#include "src/trigger/forward.h"
#include "src/trigger/trigger_check.h"
#include "src/trigger/trigger_plan.h"

static bool is_written_by_us(Oid table);
static void refuse(Oid table, const char *name);
static TriggerPlanner planner_of(Oid function);

/*
 * Checks the trigger that a statement has just created, if it is still there: its arguments,
 * if it calls a function of ours, and its table. Whoever may not create it has got the
 * error of PostgreSQL before. The statement holds a lock on the table until the
 * transaction ends.
 */
void
trigger_check_created(const CreateTrigStmt *statement)
{
	const char *function = strVal(llast(statement->funcname));
	Oid			table = RangeVarGetRelid(statement->relation, AccessShareLock, true);

	if (!OidIsValid(table))
		return;
	if (strcmp(function, "outbox_forward") == 0 || strcmp(function, "outbox_capture") == 0)
	{
		CommandCounterIncrement();
		trigger_check(table, statement->trigname);
	}
	if (is_written_by_us(table))
		refuse(table, statement->trigname);
}

/*
 * Check whether a table is one of ours to which row_write.c or deferred.c writes; our own script
 * may create triggers there.
 */
static bool
is_written_by_us(Oid table)
{
	static const char *const beginnings[] = {"log_", "window_", "record_", "history_", "deferred", "forgotten"};
	Oid			extension = get_extension_oid("outbox", true);
	const char *name = get_rel_name(table);

	/* Without the extension no table is ours, whatever its name. */
	if (!OidIsValid(extension) || getExtensionOfObject(RelationRelationId, table) != extension ||
		(creating_extension && CurrentExtensionObject == extension))
		return false;
	for (int i = 0; name && i < lengthof(beginnings); i++)
	{
		if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	}
	return false;
}

/*
 * Raises the error for a trigger on a table to which rows are written without firing
 * triggers: what relies on it, such as pg_repack, would lose rows.
 */
static void
refuse(Oid table, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot create trigger \"%s\" on table \"%s.%s\"", name, OUTBOX_SCHEMA, get_rel_name(table)),
			 errdetail("Rows are written to this table without firing triggers."),
			 errhint("A program that copies the table by means of a trigger, such as pg_repack, would lose rows; VACUUM FULL loses none.")));
}

/*
 * Raises the error that the arguments of a trigger would raise at the first row. The caller holds
 * a lock on the table. Calls no function that an argument names: who creates the trigger may be
 * a superuser that restores a dump, or pg_upgrade, and the function that of another role. (Constants
 * of arrays or rows of a domain are checked as the domain says, by the parser, as those in
 * defaults and in WHEN are.)
 */
void
trigger_check(Oid table, const char *name)
{
	Relation	relation = table_open(table, NoLock);
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "outbox trigger check", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	TriggerDesc *triggers = CopyTriggerDesc(relation->trigdesc);	/* an invalidation frees
																	 * the other */

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		TriggerPlanner make = strcmp(triggers->triggers[i].tgname, name) == 0 ?
			planner_of(triggers->triggers[i].tgfoid) : NULL;

		if (make)
			(void) make(relation, &triggers->triggers[i], NULL);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	table_close(relation, NoLock);
}

/* Check whether a function is the trigger function outbox_capture(). */
bool
trigger_check_is_capture(Oid function)
{
	return planner_of(function) == capture_change_plan;
}

/* Returns what makes the plan of triggers that call a function; NULL if it is none of ours. */
static TriggerPlanner
planner_of(Oid function)
{
	FmgrInfo	info;

	fmgr_info(function, &info);
	if (info.fn_addr == outbox_forward)
		return forward_plan_make;
	return info.fn_addr == outbox_capture_change ? capture_change_plan : NULL;
}
