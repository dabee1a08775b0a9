/*
 * utility_hook.c
 *		The hook on utility commands.
 *
 * DROP, RENAME, SET TABLESPACE of a database and its use as a template wait
 * only 5 s for all other processes to leave it. A dispatcher would never leave.
 * So while such a command runs we tell the dispatcher, and wake it; it then
 * checks whether a process holds the lock on its database, and exits. This is
 * done only if the user has the permission for the command.
 *
 * What drops the extension (extension_drop.c) first takes the entry lock (relations.c).
 * CREATE DATABASE tells the launcher that there is a new database. ALTER DATABASE ...
 * SET and ALTER ROLE ... SET restart the dispatchers that they are for. COMMIT PREPARED
 * wakes the dispatcher, because the flag of the session that prepared the transaction is
 * gone. COMMIT makes open_message.c check first for an open message.
 *
 * CREATE TRIGGER has the arguments of our trigger functions checked, and is refused on
 * tables to which rows are written without firing triggers.
 *
 * pg_restore --disable-triggers would put rows where they are not read, and the
 * following ENABLE TRIGGER ALL would turn our ALWAYS triggers into ordinary
 * ones: neither is done to our tables.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "src/claim/open_message.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/shared.h"
#include "src/table/extension_drop.h"
#include "src/table/relations.h"
#include "src/trigger/trigger_check.h"
#include "src/utility_hook.h"
#include "src/wakeup.h"

static ProcessUtility_hook_type previous_hook;

static void process_utility(PlannedStmt *statement, const char *query, bool read_only,
							ProcessUtilityContext context, ParamListInfo params,
							QueryEnvironment *environment, DestReceiver *receiver,
							QueryCompletion *completion);
static bool switches_our_triggers(Node *statement);
static bool switches_trigger(AlterTableCmd *command);
static void before_statement(Node *statement);
static void after_statement(Node *statement);
static Oid	database_to_leave(Node *statement);
static bool may_copy(Oid database);
static void begin_asking(Oid database);
static void end_asking(int code, Datum database);
static const char *template_of(CreatedbStmt *statement);
static bool sets_tablespace(AlterDatabaseStmt *statement);
static bool ends_transaction(TransactionStmt *statement);
static void settings_changed(const char *name);
static void settings_of_role_changed(AlterRoleSetStmt *statement);

/* Installs the hook; called once, by _PG_init. */
void
utility_hook_init(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

/* The hook. What it does before and after a statement depends on the statement. */
static void
process_utility(PlannedStmt *statement, const char *query, bool read_only,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *environment, DestReceiver *receiver,
				QueryCompletion *completion)
{
	/*
	 * The statement may have been freed when it has run: a COMMIT frees
	 * portals.
	 */
	Node	   *node = statement->utilityStmt;
	NodeTag		tag = nodeTag(node);
	volatile bool commit_prepared = tag == T_TransactionStmt &&
		((TransactionStmt *) node)->kind == TRANS_STMT_COMMIT_PREPARED;
	volatile Oid database = database_to_leave(node);
	ProcessUtility_hook_type next = previous_hook ? previous_hook : standard_ProcessUtility;

	if (switches_our_triggers(node))
		return;
	before_statement(node);
	if (OidIsValid(database))
	{
		begin_asking(database);
		PG_ENSURE_ERROR_CLEANUP(end_asking, ObjectIdGetDatum(database));
		{
			next(statement, query, read_only, context, params, environment, receiver, completion);
		}
		PG_END_ENSURE_ERROR_CLEANUP(end_asking, ObjectIdGetDatum(database));
		end_asking(0, ObjectIdGetDatum(database));
	}
	else
		next(statement, query, read_only, context, params, environment, receiver, completion);
	if (tag != T_TransactionStmt || commit_prepared)
		after_statement(node);
}

/*
 * Check whether a statement enables or disables triggers of one of our tables,
 * and nothing else. It is then skipped, with a warning, so that a restore can
 * go on.
 */
static bool
switches_our_triggers(Node *statement)
{
	AlterTableStmt *alter = (AlterTableStmt *) statement;
	Oid			extension;
	Oid			table;

	if (nodeTag(statement) != T_AlterTableStmt || alter->objtype != OBJECT_TABLE || list_length(alter->cmds) != 1 ||
		!switches_trigger(linitial(alter->cmds)))
		return false;
	extension = get_extension_oid("outbox", true);
	table = RangeVarGetRelid(alter->relation, NoLock, true);
	if (!OidIsValid(extension) || !OidIsValid(table) || (creating_extension && CurrentExtensionObject == extension) ||
		getExtensionOfObject(RelationRelationId, table) != extension)
		return false;
	ereport(WARNING,
			(errmsg("triggers of table \"%s\" stay as they are", alter->relation->relname),
			 errdetail("Without them, extension \"outbox\" would lose what is restored.")));
	return true;
}

/* Check whether a command of ALTER TABLE enables or disables triggers. */
static bool
switches_trigger(AlterTableCmd *command)
{
	switch (command->subtype)
	{
		case AT_EnableTrig:
		case AT_EnableTrigAll:
		case AT_EnableTrigUser:
		case AT_EnableReplicaTrig:
		case AT_DisableTrig:
		case AT_DisableTrigAll:
		case AT_DisableTrigUser:
			return true;
		default:
			return false;
	}
}

/* Does what must happen before a statement runs. */
static void
before_statement(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_DropStmt:
		case T_DropOwnedStmt:
			if (!XactReadOnly && !RecoveryInProgress() && extension_drop_follows(statement))
				relations_lock_for_drop();
			break;
		case T_TransactionStmt:
			if (ends_transaction((TransactionStmt *) statement))
				open_message_check_first();
			else if (((TransactionStmt *) statement)->kind == TRANS_STMT_COMMIT_PREPARED)
				wakeup_watch_prepared();
			break;
		default:
			break;
	}
}

/* Does what must happen when a statement has run. */
static void
after_statement(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreatedbStmt:
		case T_AlterDatabaseStmt:
		case T_DropdbStmt:
			wakeup_launcher_at_commit();
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				wakeup_launcher_at_commit();
			break;
		case T_AlterDatabaseSetStmt:
			settings_changed(((AlterDatabaseSetStmt *) statement)->dbname);
			break;
		case T_AlterRoleSetStmt:
			settings_of_role_changed((AlterRoleSetStmt *) statement);
			break;
		case T_CreateTrigStmt:
			trigger_check_created((CreateTrigStmt *) statement);
			break;
		case T_TransactionStmt:
			KILL_POINT("prepared_committed");
			wakeup_after_prepared(OidIsValid(get_extension_oid("outbox", true)));
			break;
		default:
			break;
	}
}

/*
 * Returns the database that all processes must leave for a command; InvalidOid
 * if there is none, or if the user lacks the permission for the command.
 */
static Oid
database_to_leave(Node *statement)
{
	const char *name = NULL;
	Oid			database;

	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			name = ((DropdbStmt *) statement)->dbname;
			break;
		case T_CreatedbStmt:
			name = template_of((CreatedbStmt *) statement);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				name = ((RenameStmt *) statement)->subname;
			break;
		case T_AlterDatabaseStmt:
			if (sets_tablespace((AlterDatabaseStmt *) statement))
				name = ((AlterDatabaseStmt *) statement)->dbname;
			break;
		default:
			break;
	}
	database = name ? get_database_oid(name, true) : InvalidOid;
	if (!OidIsValid(database) || shared_find(database, false) == NULL)
		return InvalidOid;
	if (compat_owns_database(database) || (nodeTag(statement) == T_CreatedbStmt && may_copy(database)))
		return database;
	return InvalidOid;
}

/*
 * Check whether the user may copy a database of another owner: it is a
 * template, and the user may create databases.
 */
static bool
may_copy(Oid database)
{
	HeapTuple	role = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	HeapTuple	row = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		may = HeapTupleIsValid(role) && ((Form_pg_authid) GETSTRUCT(role))->rolcreatedb &&
		HeapTupleIsValid(row) && ((Form_pg_database) GETSTRUCT(row))->datistemplate;

	if (HeapTupleIsValid(role))
		ReleaseSysCache(role);
	if (HeapTupleIsValid(row))
		ReleaseSysCache(row);
	return may;
}

/* Tells the dispatcher of a database, if it has one, that a command needs the database. */
static void
begin_asking(Oid database)
{
	DatabaseShared *shared = shared_find(database, false);

	if (shared == NULL)
		return;
	pg_atomic_fetch_add_u32(&shared->askers, 1);
	if (pg_atomic_read_u32(&shared->dispatcher) != 0)
		shared_wake_dispatcher(shared);
}

/*
 * Notes that the command has ended, maybe by an error. The entry may belong to
 * another database by now.
 */
static void
end_asking(int code, Datum database)
{
	DatabaseShared *shared = shared_find(DatumGetObjectId(database), false);
	uint32		askers = shared ? pg_atomic_read_u32(&shared->askers) : 0;

	while (askers > 0 && !pg_atomic_compare_exchange_u32(&shared->askers, &askers, askers - 1))
		;
}

/* Returns the name of the database that a new one is copied from. */
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

/* Check whether ALTER DATABASE moves a database to another tablespace. */
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

/* Check whether a statement commits or prepares a transaction. */
static bool
ends_transaction(TransactionStmt *statement)
{
	return statement->kind == TRANS_STMT_COMMIT || statement->kind == TRANS_STMT_PREPARE;
}

/* Restarts the dispatcher of a database: it reads the settings of its database only when it starts. */
static void
settings_changed(const char *name)
{
	Oid			oid = get_database_oid(name, true);
	DatabaseShared *shared = OidIsValid(oid) ? shared_find(oid, false) : NULL;

	if (shared)
		wakeup_restart_at_commit(shared);
}

/*
 * The same for those of a role. Dispatchers have the role that initdb has made, and what
 * is set for all roles.
 */
static void
settings_of_role_changed(AlterRoleSetStmt *statement)
{
	if (statement->role && get_rolespec_oid(statement->role, true) != BOOTSTRAP_SUPERUSERID)
		return;
	if (statement->database)
	{
		settings_changed(statement->database);
		return;
	}
	for (int i = 0; i < shared_capacity(); i++)
	{
		if (OidIsValid(shared_at(i)->database))
			wakeup_restart_at_commit(shared_at(i));
	}
}
