/*
 * ddl.c
 *		The hook on utility commands.
 *
 * DROP, RENAME, SET TABLESPACE of a database and its use as a template wait
 * only 5 s for everybody else to leave it. A dispatcher would sit there for
 * ever, so before such a command runs we leave it a hint and wake it; it tries
 * for a while whether somebody holds the lock on its database, and then goes.
 *
 * DROP EXTENSION first waits at the gate (relations.c). CREATE DATABASE tells
 * the launcher that there is a database to look at; COMMIT PREPARED wakes the
 * dispatcher, for no flag of the session that prepared has survived. And COMMIT
 * lets session.c be the first to say no.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/ddl.h"
#include "src/kill_point.h"
#include "src/relations.h"
#include "src/session.h"
#include "src/shared.h"
#include "src/wakeup.h"

/* How long a dispatcher keeps looking whether it must leave. */
#define HINT_MS		10000

static ProcessUtility_hook_type previous_hook;

static void process_utility(PlannedStmt *statement, const char *query, bool read_only,
							ProcessUtilityContext context, ParamListInfo params,
							QueryEnvironment *environment, DestReceiver *receiver,
							QueryCompletion *completion);
static void before(Node *statement);
static void after(Node *statement);
static void ask_to_leave(const char *database);
static const char *template_of(CreatedbStmt *statement);
static bool sets_tablespace(AlterDatabaseStmt *statement);
static bool drops_us(DropStmt *statement);
static bool ends_transaction(TransactionStmt *statement);
static void settings_changed(AlterDatabaseSetStmt *statement);

/* Installs the hook; once, by _PG_init. */
void
ddl_init(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

static void
process_utility(PlannedStmt *statement, const char *query, bool read_only,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *environment, DestReceiver *receiver,
				QueryCompletion *completion)
{
	/* The statement may be gone when it has run: a COMMIT frees portals. */
	Node	   *node = statement->utilityStmt;
	NodeTag		tag = nodeTag(node);
	bool		commit_prepared = tag == T_TransactionStmt &&
		((TransactionStmt *) node)->kind == TRANS_STMT_COMMIT_PREPARED;

	before(node);
	if (previous_hook)
		previous_hook(statement, query, read_only, context, params, environment, receiver, completion);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment,
								receiver, completion);
	if (tag != T_TransactionStmt || commit_prepared)
		after(node);
}

static void
before(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			ask_to_leave(((DropdbStmt *) statement)->dbname);
			break;
		case T_CreatedbStmt:
			ask_to_leave(template_of((CreatedbStmt *) statement));
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				ask_to_leave(((RenameStmt *) statement)->subname);
			break;
		case T_AlterDatabaseStmt:
			if (sets_tablespace((AlterDatabaseStmt *) statement))
				ask_to_leave(((AlterDatabaseStmt *) statement)->dbname);
			break;
		case T_DropStmt:
			if (drops_us((DropStmt *) statement) && !XactReadOnly && !RecoveryInProgress())
				relations_lock_for_drop();
			break;
		case T_TransactionStmt:
			if (ends_transaction((TransactionStmt *) statement))
				session_check_first();
			break;
		default:
			break;
	}
}

static void
after(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreatedbStmt:
		case T_AlterDatabaseStmt:
		case T_RenameStmt:
		case T_DropdbStmt:
			wakeup_launcher_at_commit();
			break;
		case T_AlterDatabaseSetStmt:
			settings_changed((AlterDatabaseSetStmt *) statement);
			break;
		case T_TransactionStmt:
			KILL_POINT("prepared_committed");
			if (OidIsValid(get_extension_oid("outbox", true)))
				wakeup_at_commit();
			break;
		default:
			break;
	}
}

/* Tells the dispatcher of a database, if it has one, to look who needs it. */
static void
ask_to_leave(const char *database)
{
	Oid			oid = database ? get_database_oid(database, true) : InvalidOid;
	DatabaseShared *shared = OidIsValid(oid) ? shared_find(oid, false) : NULL;

	if (shared == NULL)
		return;
	pg_atomic_write_u64(&shared->leave_until,
						TimestampTzPlusMilliseconds(clock_now(), HINT_MS));
	if (pg_atomic_read_u32(&shared->dispatcher) != 0)
		shared_wake_dispatcher(shared);
}

static const char *
template_of(CreatedbStmt *statement)
{
	ListCell   *cell;

	foreach(cell, statement->options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, "template") == 0 && option->arg)
			return defGetString(option);
	}
	return "template1";
}

static bool
sets_tablespace(AlterDatabaseStmt *statement)
{
	ListCell   *cell;

	foreach(cell, statement->options)
	{
		if (strcmp(((DefElem *) lfirst(cell))->defname, "tablespace") == 0)
			return true;
	}
	return false;
}

static bool
drops_us(DropStmt *statement)
{
	ListCell   *cell;

	if (statement->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, statement->objects)
	{
		if (strcmp(strVal(lfirst(cell)), "outbox") == 0)
			return true;
	}
	return false;
}

static bool
ends_transaction(TransactionStmt *statement)
{
	return statement->kind == TRANS_STMT_COMMIT || statement->kind == TRANS_STMT_PREPARE;
}

/* A dispatcher reads the settings of its database only when it starts. */
static void
settings_changed(AlterDatabaseSetStmt *statement)
{
	Oid			oid = get_database_oid(statement->dbname, true);
	DatabaseShared *shared = OidIsValid(oid) ? shared_find(oid, false) : NULL;

	if (shared)
		wakeup_restart_at_commit(shared);
}
