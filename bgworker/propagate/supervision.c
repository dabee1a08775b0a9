/*
 * supervision.c
 *		Starts the bookkeeper of our database, and ends it if it hangs.
 *
 * Called by propagation.c and the dispatcher. The bookkeeper (bookkeeper.c)
 * works on custom record tables in a process of its own, because code of others
 * runs there: a trigger may wait for anything, and catch what should end it. So
 * sending never waits for it. In shared memory it reads how far it may mark, and
 * the dispatcher reads how far it has; the log keeps receipts until they are
 * used.
 *
 * A statement that ends neither by itself nor by its time limit is ended by
 * ending the process, which cannot be caught; its table is then left alone for
 * a while, so that others get their turn. If the process does not end either,
 * because code there does not check for interrupts, it is waited for: two
 * processes would mark the same records. outbox.problems names it meanwhile.
 *
 * It ends with its dispatcher. If no worker slot is free for it, nothing is
 * marked, outbox.problems says so, and it is tried again.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/process/process.h"
#include "bgworker/process/transaction.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/propagate/table_quarantine.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/outbox.h"
#include "src/problem.h"
#include "src/record/record_table.h"
#include "src/shared.h"

#define HANGING_MS		15000	/* longer than the time limit of a statement */
#define ENDING_MS		5000	/* how long one that was told to end may take */
#define ENDING_LOOK_MS	100		/* meanwhile */
#define LOOK_MS			1000	/* while the bookkeeper works */

static BackgroundWorkerHandle *handle;	/* NULL = none runs */
static bool wanted;
static TimestampTz next_start;
static bool no_slot;			/* and the log says so */
static int	ending;				/* process that was told to end; 0 = none */
static TimestampTz ending_since;
static bool does_not_end;		/* and the log says so */

static void begin_turn(int64 propagated);
static void start_bookkeeper(void);
static void report_slot(bool is_free);
static bool reap_if_ended(void);
static void leave_where_it_ended(void);
static void end_if_hanging(void);
static void look_after_ending(void);
static void report_ending(bool in_vain);
static char *describe_table(Oid table);
static void wake_bookkeeper(void);

/*
 * Starts the bookkeeper if there are tables, which have that hash, tells it what is published, and ends
 * it if it hangs. Must be called repeatedly.
 */
void
supervision_attend(uint64 tables, const Position *position)
{
	Bookkeeping *books = &shared_mine()->books;
	bool		news;

	if (wanted != (tables != 0))
	{
		supervision_end();
		begin_turn(position->propagated);
		wanted = tables != 0;
	}
	if (!wanted)
		return;
	if (handle && reap_if_ended())
		next_start = TimestampTzPlusMilliseconds(clock_now(), BOOKKEEPER_RESTART_MS);
	look_after_ending();
	if (handle)
		end_if_hanging();
	else if (ending == 0)
		start_bookkeeper();

	LWLockAcquire(shared_mine()->lock, LW_EXCLUSIVE);
	news = books->tables != tables;
	books->tables = tables;
	if (books->marked >= position->marked)
		books->marked = Max(books->marked, position->published);
	else if (books->to_mark < position->published)
	{
		books->to_mark = position->published;
		news = true;
	}
	LWLockRelease(shared_mine()->lock);
	if (news)
		wake_bookkeeper();
}

/* Has the records in a table, or in all (InvalidOid), of all windows after what is propagated marked once more. */
void
supervision_go_back(const Position *position, Oid table)
{
	Bookkeeping *books = &shared_mine()->books;

	LWLockAcquire(shared_mine()->lock, LW_EXCLUSIVE);
	books->marked = Min(books->marked, position->propagated);
	books->returns++;
	books->returned_table = table;
	LWLockRelease(shared_mine()->lock);
	wake_bookkeeper();
}

/* Returns the newest window up to which all records in custom record tables are marked. */
int64
supervision_marked(void)
{
	int64		marked;

	LWLockAcquire(shared_mine()->lock, LW_SHARED);
	marked = shared_mine()->books.marked;
	LWLockRelease(shared_mine()->lock);
	return marked;
}

/* Returns how long until supervision_attend() must be called. */
long
supervision_ms_until_due(void)
{
	if (!wanted)
		return LOOK_MS * 10;
	if (ending != 0 && !does_not_end)
		return ENDING_LOOK_MS;
	return handle || ending != 0 ? LOOK_MS : Max(TimestampDifferenceMilliseconds(clock_now(), next_start), 1);
}

/* Asks the bookkeeper to delete expired records from custom record tables. */
void
supervision_ask_for_expiry(void)
{
	LWLockAcquire(shared_mine()->lock, LW_EXCLUSIVE);
	shared_mine()->books.expiries_asked++;
	LWLockRelease(shared_mine()->lock);
	wake_bookkeeper();
}

/* Check whether that is done, or no bookkeeper runs. */
bool
supervision_expiry_has_ended(void)
{
	Bookkeeping *books = &shared_mine()->books;
	bool		ended;

	LWLockAcquire(shared_mine()->lock, LW_SHARED);
	ended = books->expiries_done == books->expiries_asked;
	LWLockRelease(shared_mine()->lock);
	return ended || !wanted || no_slot || does_not_end;
}

/* Ends the bookkeeper, if one runs, without waiting for it. */
void
supervision_end(void)
{
	if (handle == NULL)
		return;
	TerminateBackgroundWorker(handle);
	pfree(handle);
	handle = NULL;
}

/* Begins a turn: from now on, reports of a bookkeeper that was started before do not count. */
static void
begin_turn(int64 propagated)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->books.turn++;
	shared->books.marked = shared->books.to_mark = propagated;
	shared->books.expiries_done = shared->books.expiries_asked;
	ending = shared->books.process ? shared->books.pid : 0;
	if (ending != 0 && OidIsValid(shared->books.busy_with))
		shared->books.ended_at = shared->books.busy_with;
	shared->books.busy_with = InvalidOid;
	LWLockRelease(shared->lock);
	ending_since = clock_now();
	does_not_end = false;
	no_slot = false;			/* else it would not be reported once more */
	problem_clear(PROBLEM_MARKING);
	problem_clear(PROBLEM_EXPIRY);
}

/* Starts a bookkeeper, at most once per second. */
static void
start_bookkeeper(void)
{
	if (clock_now() < next_start)
		return;
	handle = process_start("bookkeeper", OUTBOX_BOOKKEEPER_MAIN, MyDatabaseId, shared_mine()->books.turn);
	KILL_POINT("bookkeeper_started");
	report_slot(handle != NULL);
	next_start = TimestampTzPlusMilliseconds(clock_now(), BOOKKEEPER_RESTART_MS);
}

/* Reports whether a worker slot is free, when that changes. */
static void
report_slot(bool is_free)
{
	if (no_slot == !is_free)
		return;
	no_slot = !is_free;
	if (is_free)
	{
		problem_clear(PROBLEM_MARKING);
		return;
	}
	ereport(LOG,
			(errmsg("outbox: no worker slot is free for the bookkeeper"),
			 errdetail("Processed messages cannot be marked."),
			 errhint("Raise \"max_worker_processes\" and restart the server.")));
	problem_set(PROBLEM_MARKING, "Processed messages cannot be marked because no worker slot is free for the process that does it, so the log keeps their receipts. Raise max_worker_processes and restart the server.");
}

/* Returns whether the bookkeeper has ended; if so, forgets it. */
static bool
reap_if_ended(void)
{
	pid_t		pid;

	if (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
		return false;
	pfree(handle);
	handle = NULL;
	leave_where_it_ended();
	return true;
}

/*
 * Leaves the table alone at which the process ended. A trigger can make it end
 * on an error (exit_on_error), which must not happen repeatedly.
 */
static void
leave_where_it_ended(void)
{
	Bookkeeping *books = &shared_mine()->books;

	LWLockAcquire(shared_mine()->lock, LW_EXCLUSIVE);
	if (OidIsValid(books->busy_with))
		table_quarantine_add(books, books->busy_with);
	LWLockRelease(shared_mine()->lock);
}

/* Ends the process if a statement of it does not end: nothing else helps. */
static void
end_if_hanging(void)
{
	DatabaseShared *shared = shared_mine();
	Oid			table;
	bool		hangs;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	table = shared->books.busy_with;
	hangs = OidIsValid(table) &&
		TimestampDifferenceExceeds(shared->books.busy_since, clock_now(), HANGING_MS);
	if (hangs)
	{
		table_quarantine_add(&shared->books, table);
		ending = shared->books.pid;
		ending_since = clock_now();
	}
	LWLockRelease(shared->lock);
	if (!hangs)
		return;
	ereport(LOG,
			(errmsg("outbox: a statement on record table %u does not end; terminating the bookkeeper", table),
			 errdetail("The table is left alone for %d s.", TABLE_QUARANTINE_S)));
	TerminateBackgroundWorker(handle);
}

/*
 * Checks whether a process that was told to end has done so, and reports it if
 * that takes long.
 */
static void
look_after_ending(void)
{
	Bookkeeping *books = &shared_mine()->books;
	bool		has_ended;

	if (ending == 0)
		return;
	LWLockAcquire(shared_mine()->lock, LW_SHARED);
	has_ended = books->process == 0 || books->pid != ending;
	LWLockRelease(shared_mine()->lock);
	if (has_ended)
	{
		ending = 0;
		report_ending(false);
	}
	else if (TimestampDifferenceExceeds(ending_since, clock_now(), ENDING_MS))
		report_ending(true);
}

/* Reports once that the process does not end, or that it has ended. */
static void
report_ending(bool in_vain)
{
	char	   *table;

	if (does_not_end == in_vain)
		return;
	does_not_end = in_vain;
	if (!in_vain)
	{
		ereport(LOG, (errmsg("outbox: the bookkeeper that did not end has now ended")));
		problem_clear(PROBLEM_MARKING);
		return;
	}
	table = describe_table(shared_mine()->books.ended_at);
	ereport(LOG,
			(errmsg("outbox: the bookkeeper with PID %d does not end", ending),
			 errdetail("It works on %s, where code does not check for interrupts.  Until it ends, processed messages cannot be marked.", table)));
	problem_set(PROBLEM_MARKING,
				"Processed messages cannot be marked in any table, so the log keeps their receipts: process %d works on %s and does not end, because code there does not check for interrupts. Wait for its end or restart the server, then correct the trigger.",
				ending, table);
	pfree(table);
}

/* Returns how to name a record table in messages; palloc'd. */
static char *
describe_table(Oid table)
{
	char	   *name = NULL;
	char	   *text;

	if (OidIsValid(table) && transaction_begin("naming a record table"))
	{
		name = get_rel_name(table) ? MemoryContextStrdup(TopMemoryContext, record_table_name(table)) : NULL;
		transaction_commit();
	}
	if (name == NULL)
		return MemoryContextStrdup(TopMemoryContext, "a record table");
	text = psprintf("record table %s", name);
	pfree(name);
	return text;
}

/* Wakes the bookkeeper, if it runs. */
static void
wake_bookkeeper(void)
{
	uint32		process;

	LWLockAcquire(shared_mine()->lock, LW_SHARED);
	process = shared_mine()->books.process;
	LWLockRelease(shared_mine()->lock);
	shared_wake_process(process);
}
