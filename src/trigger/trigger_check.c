/*
 * trigger_check.c
 *		Checks the arguments of a trigger of ours when it is created.
 *
 * Called by the hook on utility commands, after CREATE TRIGGER, and by
 * outbox_capture(). PostgreSQL does not call a trigger function when a trigger
 * is created; without this check a wrong argument would show at the first row.
 * It still does so if the library is not preloaded, and if the table is
 * changed later.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "src/table/trigger_refusal.h"
#include "src/trigger/capture_change.h"
#include "src/trigger/forward.h"
#include "src/trigger/trigger_check.h"
#include "src/trigger/trigger_plan.h"

static TriggerPlanner planner_of(Oid function);

/*
 * Checks the trigger that a statement has just created, if it is still there: its arguments,
 * if it calls a function of ours, and whether its table may have it. Whoever may not create
 * it has got the error of PostgreSQL before. The statement holds a lock on the table until
 * the transaction ends.
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
	trigger_refusal_check(table, statement->trigname);
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

/*
 * Returns what makes the plan of triggers that call a function; NULL if it is none of ours. What
 * fmgr_info() finds would be the code that sets a search_path first, if ALTER FUNCTION has given it one.
 */
static TriggerPlanner
planner_of(Oid function)
{
	HeapTuple	row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	TriggerPlanner planner = NULL;
	bool		isnull;
	char	   *symbol;

	if (!HeapTupleIsValid(row))
		return NULL;
	symbol = TextDatumGetCString(SysCacheGetAttr(PROCOID, row, Anum_pg_proc_prosrc, &isnull));
	if (((Form_pg_proc) GETSTRUCT(row))->prolang == ClanguageId)
	{
		if (strcmp(symbol, "outbox_forward") == 0)
			planner = forward_plan_make;
		else if (strcmp(symbol, "outbox_capture_change") == 0)
			planner = capture_change_plan;
	}
	ReleaseSysCache(row);
	return planner;
}
