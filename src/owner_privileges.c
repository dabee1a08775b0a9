/*
 * owner_privileges.c
 *		Runs statements with exactly the privileges of a table's owner.
 *
 * Called around statements on tables on which the caller need not have
 * privileges: outbox.endpoint, and custom record tables, which may have
 * triggers and defaults; and around functions of indexes that an administrator
 * has added to our tables. These run with the privileges of the table's owner in
 * a security-restricted operation, as under VACUUM and REINDEX, so they gain
 * nothing from the caller, even if that is a superuser or a worker. They must
 * not use the outbox, which is in the middle of an operation.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/portal.h"
#include "utils/resowner.h"

#include "src/owner_privileges.h"
#include "src/settings.h"

static bool code_runs;			/* triggers of a record table may be running */

static void run_as_owner(Oid owner, OwnerStatement statement, void *arg);
static void close_cursors(void);

/*
 * Switches to the privileges of `owner`, with a search_path that finds only
 * system objects. After an error owner_privileges_return() is not needed: the end
 * of the (sub)transaction restores everything.
 */
void
owner_privileges_take(OwnerPrivileges *before, Oid owner)
{
	before->nest_level = NewGUCNestLevel();
	settings_override("search_path", "pg_catalog, pg_temp");
	GetUserIdAndSecContext(&before->user, &before->context);
	SetUserIdAndSecContext(owner, before->context | SECURITY_RESTRICTED_OPERATION);
}

/* Restores what owner_privileges_take() has changed. */
void
owner_privileges_return(const OwnerPrivileges *before)
{
	SetUserIdAndSecContext(before->user, before->context);
	AtEOXact_GUC(false, before->nest_level);
}

/*
 * Runs a statement on a record table with the privileges of its owner, in a
 * subtransaction. Returns NULL; or the error that it has raised, in the
 * caller's memory context, after rolling it back.
 */
ErrorData *
owner_try(Oid owner, OwnerStatement statement, void *arg)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner resources = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	owner_code_begin();
	PG_TRY();
	{
		run_as_owner(owner, statement, arg);
		ReleaseCurrentSubTransaction();
		owner_code_end();
	}
	PG_CATCH();
	{
		owner_code_end();
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = resources;
	return error;
}

/*
 * Notes that a statement is about to run code of the owner of a record table:
 * triggers, defaults, checks. That code must not use the outbox until
 * owner_code_end(), which must be called after an error, too.
 */
void
owner_code_begin(void)
{
	code_runs = true;
}

/* Notes that this code has ended. */
void
owner_code_end(void)
{
	code_runs = false;
}

/* Raises 55000 if it is called by code of the owner of a record table. */
void
owner_code_refuse(void)
{
	if (code_runs)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the code of a record table must not use the outbox")));
}

/* Runs the statement. Cursors must be closed while the privileges of the owner are in force. */
static void
run_as_owner(Oid owner, OwnerStatement statement, void *arg)
{
	OwnerPrivileges before;

	owner_privileges_take(&before, owner);
	SPI_connect();
	statement(arg);
	close_cursors();
	SPI_finish();
	owner_privileges_return(&before);
}

/*
 * Closes the cursors that triggers have left open, which are all those of our
 * subtransaction: otherwise the owner's query would run with the privileges of
 * the role that fetches from it.
 */
static void
close_cursors(void)
{
	static SPIPlanPtr list;

	if (list == NULL)
	{
		list = SPI_prepare("SELECT name FROM pg_catalog.pg_cursor()", 0, NULL);
		if (list == NULL || SPI_keepplan(list) != 0)
			elog(ERROR, "could not prepare a list of the cursors");
	}
	if (SPI_execute_plan(list, NULL, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list the cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Portal		portal = GetPortalByName(SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));

		if (PortalIsValid(portal) && portal->createSubid == GetCurrentSubTransactionId() &&
			portal->status == PORTAL_READY && portal->portalPinned == false)
			SPI_cursor_close(portal);
	}
}
