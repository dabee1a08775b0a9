/*
 * transaction.c
 *		Begins and ends the transactions of the workers.
 *
 * Every transaction of the dispatcher begins and ends here, and none is open
 * while it talks to Redis. Each one first takes a lock on the extension
 * (relations_enter() in src/table/relations.c), so DROP EXTENSION waits for it
 * to end, and it does not begin while the extension is being dropped.
 *
 * Our processes are superusers, but a transaction has the privileges of the role that owns
 * our tables. That is usually a superuser, too; but REASSIGN OWNED may have given the
 * tables to another role, whose triggers and defaults our statements execute then: in a
 * security-restricted operation.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "bgworker/process/transaction.h"
#include "src/claim/durable_commit.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/ring/ring.h"
#include "src/table/relations.h"

/* A standby that needs longer than this to confirm a commit is a problem. */
#define STANDBY_PATIENCE_MS	1000

static Oid	extension;			/* the extension that this process works for */
static bool refused;
static bool untold;				/* outbox.ring was changed, and sessions do
								 * not know yet */
static bool (*attend_meanwhile) (void); /* called while waiting for a standby;
										 * NULL = the commit itself waits */
static XLogRecPtr unconfirmed;	/* the standby may lack what was committed up
								 * to there; 0 = it has all */
static TimestampTz unconfirmed_since;	/* by clock_now(); of the first commit
										 * of those */

static void note_unconfirmed(void);
static bool attend_to_wait(void);
static void set_synchronous_commit(const char *value);
static void take_privileges_of(Oid owner);
static void return_privileges(void);

/*
 * Prepares for use; called once, when the dispatcher starts. `attend` is called
 * while a commit waits for the synchronous standby. No transaction is open
 * then, and it must neither begin one nor publish. It need not return; if it
 * returns false, the wait is put off until transaction_confirm().
 */
void
transaction_init(bool (*attend) (void))
{
	attend_meanwhile = attend;
}

/*
 * Begins a transaction with a new snapshot. Returns false if the extension is
 * not there or is being dropped; then no transaction is open.
 */
bool
transaction_begin(const char *activity)
{
	const Relations *relations;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	relations = relations_try_enter();
	if (relations && extension == InvalidOid)
		extension = relations->extension;
	if (relations == NULL || relations->extension != extension)
	{
		refused = true;
		AbortCurrentTransaction();
		MemoryContextSwitchTo(TopMemoryContext);
		return false;
	}
	take_privileges_of(relations->owner);
	PushActiveSnapshot(GetTransactionSnapshot());
	if (untold)
	{
		rings_reload();
		untold = false;
	}
	pgstat_report_activity(STATE_RUNNING, activity);
	return true;
}

/* Check whether a transaction could not begin since transaction_refusal() was called. */
bool
transaction_was_refused(void)
{
	return refused;
}

/* Returns why a transaction could not begin since the last call, if so. */
Refusal
transaction_refusal(void)
{
	Oid			now;

	if (!refused)
		return REFUSAL_NONE;
	refused = false;
	StartTransactionCommand();
	now = get_extension_oid("outbox", true);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);

	if (now == InvalidOid)
		return REFUSAL_GONE;
	return extension == InvalidOid || now == extension ? REFUSAL_BUSY : REFUSAL_ANOTHER;
}

/*
 * Commits. If the transaction wrote anything, it is on disk and on the
 * synchronous standby when this returns: dispatchers ignore the signal that
 * could cancel the wait, and if they are terminated meanwhile this does not
 * return. A process that passed `attend` waits after the commit, which other
 * processes then see before the standby has it; and where `attend` has put the
 * wait off, that is so when this returns.
 */
void
transaction_commit(void)
{
	bool		waits = attend_meanwhile && durable_commit_has_standby();
	bool		wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());

	if (waits && wrote)
		set_synchronous_commit("local");
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	return_privileges();
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	if (waits && wrote)
		note_unconfirmed();
	if (waits)
		(void) transaction_confirm();
	CHECK_FOR_INTERRUPTS();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * Waits until the synchronous standby has all that was committed. Must be called
 * before anything is done that relies on it, by a process whose `attend` may put
 * the wait off; returns whether it has.
 */
bool
transaction_confirm(void)
{
	if (!XLogRecPtrIsInvalid(unconfirmed) && durable_commit_wait_for_standby(unconfirmed, attend_to_wait))
	{
		unconfirmed = InvalidXLogRecPtr;
		problem_clear(PROBLEM_STANDBY);
	}
	return XLogRecPtrIsInvalid(unconfirmed);
}

/* Commits without waiting for a standby; for transactions that hold strong locks. */
void
transaction_commit_local(void)
{
	set_synchronous_commit("local");
	transaction_commit();
}

/*
 * The same for what is relied on later: transaction_confirm(), and so the next commit, waits for a
 * standby that may lack this one.
 */
void
transaction_commit_at_once(void)
{
	bool		wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());

	transaction_commit_local();
	if (wrote && attend_meanwhile && durable_commit_has_standby())
		note_unconfirmed();
}

/* Rolls back after an error that was caught. */
void
transaction_abort(void)
{
	AbortCurrentTransaction();
	MemoryContextSwitchTo(TopMemoryContext);
	CHECK_FOR_INTERRUPTS();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* Commits without waiting for the disk; for changes that take effect only by a later commit. */
void
transaction_commit_async(void)
{
	set_synchronous_commit("off");
	transaction_commit();
}

/*
 * Makes committed changes of outbox.ring known to all sessions: now or, if no
 * transaction can begin, with the next one that can.
 */
void
transaction_tell_rings(void)
{
	untold = true;
	if (transaction_begin("telling of a segment's state"))
		transaction_commit();
	KILL_POINT("sessions_told");
}

/*
 * Runs a statement in the open transaction and returns how many rows it
 * processed. Names in it must be qualified: search_path is pg_catalog.
 */
int64
transaction_execute(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls)
{
	int64		rows;

	SPI_connect();
	rows = transaction_query(sql, nargs, types, values, nulls);
	SPI_finish();
	return rows;
}

/*
 * The same for a statement whose rows are wanted: they are in SPI_tuptable. Must be called
 * between SPI_connect() and SPI_finish(). It is not read-only, for that would have it use the
 * snapshot that is there: one without what was written just now, and, where ALTER TABLE has
 * rewritten a table while we waited for its lock, without all rows of it.
 */
int64
transaction_query(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls)
{
	int			result = SPI_execute_with_args(sql, nargs, types, values, nulls, false, 0);

	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(result));
	return (int64) SPI_processed;
}

/*
 * The same for a statement that is planned once, when it is run first. Must be
 * called between SPI_connect() and SPI_finish(); the rows are in SPI_tuptable.
 * Returns how many rows were returned or processed.
 */
int64
transaction_run(Statement *statement, Datum *values, const char *nulls)
{
	int			result;

	if (statement->plan == NULL)
	{
		statement->plan = SPI_prepare(statement->sql, statement->nargs, statement->types);
		if (statement->plan == NULL || SPI_keepplan(statement->plan) != 0)
			elog(ERROR, "could not prepare \"%s\"", statement->sql);
	}
	result = SPI_execute_plan(statement->plan, values, nulls, false, 0);
	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", statement->sql, SPI_result_code_string(result));
	return (int64) SPI_processed;
}

/* Notes that the standby may lack the transaction that has just been committed. */
static void
note_unconfirmed(void)
{
	if (XLogRecPtrIsInvalid(unconfirmed))
		unconfirmed_since = clock_now();
	unconfirmed = XactLastCommitEnd;
}

/* Called while the standby is waited for: says so if that lasts. */
static bool
attend_to_wait(void)
{
	if (!problem_is_set(PROBLEM_STANDBY) &&
		TimestampDifferenceExceeds(unconfirmed_since, clock_now(), STANDBY_PATIENCE_MS))
		problem_set(PROBLEM_STANDBY, "The dispatcher waits for a synchronous standby, so nothing is sent. Start the standby, or take it out of synchronous_standby_names by ALTER SYSTEM and a reload.");
	return attend_meanwhile();
}

/* Sets synchronous_commit for the open transaction. */
static void
set_synchronous_commit(const char *value)
{
	/* A source below PGC_S_SESSION would not be undone at the end. */
	(void) set_config_option("synchronous_commit", value,
							 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * Gives the transaction that has begun the privileges of a role. Code of one that is no
 * superuser cannot queue triggers for the commit, which has the privileges of the process.
 */
static void
take_privileges_of(Oid owner)
{
	SetUserIdAndSecContext(owner, superuser_arg(owner) ? 0 : SECURITY_RESTRICTED_OPERATION);
}

/* Gives the privileges of this process back, before a commit; a rollback does so by itself. */
static void
return_privileges(void)
{
	SetUserIdAndSecContext(GetSessionUserId(), 0);
}
