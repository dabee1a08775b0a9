/*
 * table_statement.c
 *		Runs a statement on a custom record table, with limits.
 *
 * Called by mark_statement.c and table_expiry.c. Unlike our own tables, these have
 * rows that others lock, triggers that fail, and owners who alter them. So
 * nothing here waits for a lock; statements have a time limit and run with the
 * privileges of the table's owner (owner_privileges.c); and an error ends only this
 * transaction, not the process: the caller tries again later. A trigger may
 * catch what should end it. So shared memory says while the owner's code may be
 * running, and the dispatcher ends this process if that takes too long
 * (supervision.c).
 *
 * A statement may be run twice, so its commit need not be flushed: commits that
 * rely on it are flushed later.
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "bgworker/process/process.h"
#include "bgworker/process/transaction.h"
#include "bgworker/propagate/table_quarantine.h"
#include "bgworker/propagate/table_statement.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/owner_privileges.h"
#include "src/settings.h"
#include "src/shared.h"

/* How long a statement may take, and how long code that it executes may wait for a lock. */
#define STATEMENT_MS	10000
#define LOCK_WAIT		"1s"

static char error_text[256];

static const Endpoint *find_endpoint(const char *name, TableStatement *statement);
static bool open_table(TableStatement *statement);
static void begin_time_limit(Oid table);
static void end_time_limit(void);
static void note_busy(Oid table);
static void note_error(const char *endpoint);

/*
 * Calls a function for the table of an endpoint in a transaction of its own.
 * Returns false if that fails; table_statement_error() then says why. It is no
 * failure if the endpoint no longer has that table, or it was dropped.
 */
bool
table_statement_run(TableStatementFunction function, TableStatement *statement, const char *endpoint, const char *activity)
{
	volatile bool done = true;

	if (!transaction_begin(activity))
	{
		error_text[0] = '\0';
		return false;
	}
	PG_TRY();
	{
		statement->endpoint = find_endpoint(endpoint, statement);
		if (statement->endpoint)
		{
			table_quarantine_check(statement->endpoint->mapping.table);
			begin_time_limit(statement->endpoint->mapping.table);
			if (open_table(statement))
			{
				PushActiveSnapshot(GetTransactionSnapshot());
				owner_code_begin();
				KILL_POINT("before_owner_code");
				function(statement);
				owner_code_end();
				PopActiveSnapshot();
				table_close(statement->table, NoLock);
			}
			end_time_limit();
		}
		transaction_commit_async();
	}
	PG_CATCH();
	{
		owner_code_end();
		end_time_limit();
		note_error(endpoint);
		transaction_abort();
		done = false;
	}
	PG_END_TRY();
	process_release_locks();
	return done;
}

/*
 * Returns why table_statement_run() returned false last; "" = the extension is being
 * dropped.
 */
const char *
table_statement_error(void)
{
	return error_text;
}

/* Returns the endpoint, if it keeps its records in the table that is wanted, and that exists; otherwise NULL. */
static const Endpoint *
find_endpoint(const char *name, TableStatement *statement)
{
	ListCell   *cell;

	foreach(cell, endpoint_list())
	{
		Endpoint   *endpoint = lfirst(cell);

		if (strcmp(endpoint->name, name) == 0 && endpoint->mapping.table == statement->wanted)
			return get_rel_relkind(statement->wanted) != '\0' ? endpoint : NULL;
	}
	statement->is_gone = true;
	return NULL;
}

/* Opens the table. Returns false if it is locked. */
static bool
open_table(TableStatement *statement)
{
	statement->is_locked = !ConditionalLockRelationOid(statement->endpoint->mapping.table, RowExclusiveLock);
	if (statement->is_locked)
		return false;
	statement->table = record_table_open(statement->endpoint->name, &statement->endpoint->mapping, NoLock, &statement->shape);
	return true;
}

/*
 * Runs a statement with the privileges of the table's owner and the active
 * snapshot; *result is its first row, whose columns are copied, and not NULL.
 */
void
table_statement_execute(const TableStatement *statement, const char *sql, int nargs, Oid *types, Datum *values, int ncolumns, Datum *result)
{
	OwnerPrivileges before;
	SPIPlanPtr	plan;
	bool		isnull;
	int			code;

	owner_privileges_take(&before, statement->shape.owner);
	settings_override("lock_timeout", LOCK_WAIT);
	SPI_connect();
	plan = SPI_prepare(sql, nargs, types);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	code = SPI_execute_snapshot(plan, values, NULL, GetActiveSnapshot(), InvalidSnapshot, false, true, 0);
	if (code < 0)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(code));
	for (int i = 0; i < ncolumns; i++)
	{
		Form_pg_attribute column = TupleDescAttr(SPI_tuptable->tupdesc, i);

		result[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull);
		if (!isnull)
			result[i] = SPI_datumTransfer(result[i], column->attbyval, column->attlen);
	}
	SPI_finish();
	owner_privileges_return(&before);
}

/*
 * Limits the time of a statement: triggers belong to the owner, and may wait
 * for anything. The limits work by the signal that cancels a statement, which
 * our processes ignore elsewhere.
 */
static void
begin_time_limit(Oid table)
{
	note_busy(table);
	pqsignal(SIGINT, StatementCancelHandler);
	enable_timeout_after(STATEMENT_TIMEOUT, STATEMENT_MS);
}

/* Ends the time limit; a cancel that came too late must not reach the next statement. */
static void
end_time_limit(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	pqsignal(SIGINT, SIG_IGN);
	QueryCancelPending = false;
	note_busy(InvalidOid);
}

/*
 * Notes for the dispatcher that code of this table's owner may be running;
 * InvalidOid = no code is running.
 */
static void
note_busy(Oid table)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->books.busy_with = table;
	shared->books.busy_since = clock_now();
	LWLockRelease(shared->lock);
}

/* Keeps the text of an error that was caught. The transaction is still to be aborted. */
static void
note_error(const char *endpoint)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	FlushErrorState();
	snprintf(error_text, sizeof(error_text), "records of endpoint \"%s\": %s%s%s", endpoint, error->message,
			 error->detail ? ". " : "", error->detail ? error->detail : "");

	/* The text may have been cut within a character. */
	error_text[pg_mbcliplen(error_text, strlen(error_text), strlen(error_text))] = '\0';
	FreeErrorData(error);
}
