/*
 * table_work.c
 *		Runs one piece of work on a custom record table.
 *
 * Called by bookkeeping.c. These tables have what ours do not: rows that others
 * lock, triggers that fail, owners who alter them. So nothing here waits for a
 * lock, statements have a time limit, they run with the rights of the table's
 * owner (owner.c), and an error ends this one transaction and not the process:
 * the caller tries again later. A trigger may catch what should end it: so
 * while the owner's code may run that stands in shared memory, and the
 * dispatcher ends this process if it takes too long (supervision.c).
 *
 * The work may be done twice, so its commit need not be flushed: what relies
 * on it is flushed after it.
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "bgworker/propagate/left_alone.h"
#include "bgworker/propagate/table_work.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/record/owner.h"
#include "src/shared.h"

/* How long a statement may take, and wait for locks of what it sets off. */
#define STATEMENT_MS	10000
#define LOCK_WAIT		"1s"

static char error_text[256];

static const Endpoint *find_endpoint(const char *name);
static bool open_table(TableWork *work);
static void begin_time_limit(Oid table);
static void end_time_limit(void);
static void note_busy(Oid table);
static void note_error(const char *endpoint);

/*
 * Does something with the table of an endpoint in a transaction of its own.
 * If that fails it says why in table_work_error() and returns false. An
 * endpoint that has no such table any more is no failure.
 */
bool
table_work_run(TableWorkFunction function, TableWork *work, const char *endpoint, const char *activity)
{
	volatile bool done = true;

	if (!transaction_begin(activity))
	{
		error_text[0] = '\0';
		return false;
	}
	PG_TRY();
	{
		work->endpoint = find_endpoint(endpoint);
		if (work->endpoint)
		{
			left_alone_check(work->endpoint->mapping.table);
			begin_time_limit(work->endpoint->mapping.table);
			if (open_table(work))
			{
				PushActiveSnapshot(GetTransactionSnapshot());
				owner_code_begin();
				KILL_POINT("before_owner_code");
				function(work);
				owner_code_end();
				PopActiveSnapshot();
				table_close(work->table, NoLock);
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
	return done;
}

/*
 * What went wrong when table_work_run() returned false last; "" = the
 * extension is being dropped.
 */
const char *
table_work_error(void)
{
	return error_text;
}

/* The endpoint, if it keeps its records in a table that exists; else NULL. */
static const Endpoint *
find_endpoint(const char *name)
{
	ListCell   *cell;

	foreach(cell, endpoint_list())
	{
		Endpoint   *endpoint = lfirst(cell);

		if (strcmp(endpoint->name, name) == 0 && get_rel_relkind(endpoint->mapping.table) != '\0')
			return endpoint;
	}
	return NULL;
}

/* False if somebody has locked the table. */
static bool
open_table(TableWork *work)
{
	work->is_locked = !ConditionalLockRelationOid(work->endpoint->mapping.table, RowExclusiveLock);
	if (work->is_locked)
		return false;
	work->table = record_table_open(work->endpoint->name, &work->endpoint->mapping, NoLock, &work->shape);
	return true;
}

/*
 * Runs a statement with the rights of the table's owner, who sees what the active
 * snapshot does; *result is its first row, whose columns are passed by value and
 * not NULL.
 */
void
table_work_execute(const TableWork *work, const char *sql, int nargs, Oid *types, Datum *values, int ncolumns, Datum *result)
{
	OwnerRights before;
	SPIPlanPtr	plan;
	bool		isnull;
	int			code;

	owner_rights_take(&before, work->shape.owner);
	(void) set_config_option("lock_timeout", LOCK_WAIT,
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	plan = SPI_prepare(sql, nargs, types);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	code = SPI_execute_snapshot(plan, values, NULL, GetActiveSnapshot(), InvalidSnapshot, false, true, 0);
	if (code < 0)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(code));
	for (int i = 0; i < ncolumns; i++)
		result[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull);
	SPI_finish();
	owner_rights_return(&before);
}

/*
 * Triggers are the owner's, and may wait for anything. The limits work by the
 * signal that cancels a statement, which dispatchers ignore elsewhere.
 */
static void
begin_time_limit(Oid table)
{
	note_busy(table);
	pqsignal(SIGINT, StatementCancelHandler);
	enable_timeout_after(STATEMENT_TIMEOUT, STATEMENT_MS);
}

static void
end_time_limit(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	pqsignal(SIGINT, SIG_IGN);
	QueryCancelPending = false;
	note_busy(InvalidOid);
}

/*
 * Tells the dispatcher that code of this table's owner may run; InvalidOid =
 * not any more.
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

/* Called where an error was caught, with the transaction still to be aborted. */
static void
note_error(const char *endpoint)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	FlushErrorState();
	snprintf(error_text, sizeof(error_text), "records of endpoint \"%s\": %s%s%s", endpoint, error->message,
			 error->detail ? "; " : "", error->detail ? error->detail : "");

	/* Where it was cut there may be half a character. */
	error_text[pg_mbcliplen(error_text, strlen(error_text), strlen(error_text))] = '\0';
	FreeErrorData(error);
}
