/*
 * bookkeeper.c
 *		The process that works on custom record tables.
 *
 * The dispatcher starts it when an endpoint has such a table (supervision.c).
 * Its loop: mark the records of windows that are published, delete expired
 * records, wait. It has no state that matters: everything it does may be done
 * twice, and it reports how far it got to the dispatcher, which writes that to
 * disk.
 *
 * It must never send anything, write to our own tables, or outlive its
 * dispatcher: it works for one run of a dispatcher, and when that has ended it
 * reports nothing more and ends.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "bgworker/process/process.h"
#include "bgworker/process/transaction.h"
#include "bgworker/propagate/marking.h"
#include "bgworker/propagate/marking_progress.h"
#include "bgworker/propagate/table_expiry.h"
#include "bgworker/propagate/table_quarantine.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/settings.h"
#include "src/shared.h"

#define IDLE_MS			10000
#define ATTEND_MS		100		/* while the extension is being dropped */
#define LIST_MS			1000	/* while the dispatcher knows of other tables */

PGDLLEXPORT void outbox_bookkeeper_main(Datum database);

static DatabaseShared *shared;
static uint32 turn;				/* of the dispatcher that this process works
								 * for */
static uint32 returns_seen;		/* how often marking had gone back */
static bool lists_differ;		/* the dispatcher knows of other tables */
static bool is_expiring;
static uint64 expiry_seen;		/* number of the round of expiry being done */

static void register_bookkeeper(void);
static void deregister_bookkeeper(int code, Datum arg);
static bool is_our_turn(void);
static void attend(void);
static bool attend_to_refusal(void);
static bool mark_pages(void);
static bool expire(void);
static bool begin_expiry(void);
static void end_expiry(void);
static void report_expiry(const char *error);

/* Entry point; the argument is the oid of the database. */
void
outbox_bookkeeper_main(Datum database)
{
	memcpy(&turn, MyBgworkerEntry->bgw_extra, sizeof(turn));
	process_connect(DatumGetObjectId(database));
	shared = shared_mine();
	if (shared == NULL)
		proc_exit(0);
	process_take_role(LOCK_CLASS_BOOKKEEPER);
	register_bookkeeper();
	marking_init();
	table_quarantine_init();
	KILL_POINT("bookkeeper_registered");

	for (;;)
	{
		bool		more;

		ResetLatch(MyLatch);
		attend();
		more = mark_pages();
		more |= expire();
		if (attend_to_refusal() || more)
			continue;
		process_sleep(Min(lists_differ ? LIST_MS : IDLE_MS, Min(marking_ms_until_due(), table_expiry_ms_until_due())), OUTBOX_WAIT_BOOKKEEPER);
	}
}

/* Makes this process visible to the dispatcher, unless its turn is over already. */
static void
register_bookkeeper(void)
{
	before_shmem_exit(deregister_bookkeeper, (Datum) 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (shared->books.turn == turn)
	{
		shared->books.process = MyProcNumber + 1;
		shared->books.pid = MyProcPid;
		shared->books.busy_with = InvalidOid;
	}
	LWLockRelease(shared->lock);
}

/* Removes this process from shared memory, unless a successor has registered there. */
static void
deregister_bookkeeper(int code, Datum arg)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	/* `busy_with` stays, so that the dispatcher learns where we ended. */
	if (shared->books.process == MyProcNumber + 1)
		shared->books.process = 0;
	LWLockRelease(shared->lock);
}

/* Check whether the dispatcher that this process works for still runs. */
static bool
is_our_turn(void)
{
	bool		ours;

	LWLockAcquire(shared->lock, LW_SHARED);
	ours = shared->books.turn == turn;
	LWLockRelease(shared->lock);
	return ours && pg_atomic_read_u32(&shared->dispatcher) != 0;
}

/* Does what other processes ask of this one. Must not be called inside a transaction. */
static void
attend(void)
{
	CHECK_FOR_INTERRUPTS();
	(void) process_reload_settings();
	if (!is_our_turn())
		proc_exit(0);
}

/*
 * If a transaction could not begin, ends the process if the extension was dropped,
 * otherwise waits. Returns whether that was so.
 */
static bool
attend_to_refusal(void)
{
	switch (transaction_refusal())
	{
		case REFUSAL_NONE:
			return false;
		case REFUSAL_GONE:
		case REFUSAL_ANOTHER:
			proc_exit(0);
			break;
		case REFUSAL_BUSY:
			process_pause(ATTEND_MS, OUTBOX_WAIT_BOOKKEEPER);
			break;
	}
	return true;
}

/*
 * Marks a page of records in each table, and reports how far all tables have
 * got, unless the dispatcher knows of other tables: then an endpoint may have had none for a
 * moment only, and its receipts are to be read again. Returns whether there is more to do.
 */
static bool
mark_pages(void)
{
	int64		to_mark;
	int64		marked;
	uint32		returns;
	Oid			returned;
	bool		more;
	bool		done = false;

	LWLockAcquire(shared->lock, LW_SHARED);
	to_mark = shared->books.to_mark;
	marked = shared->books.marked;
	lists_differ = shared->books.tables != marking_progress_hash();
	returns = shared->books.returns;
	returned = shared->books.returned_table;
	LWLockRelease(shared->lock);
	if (returns != returns_seen)
		marking_begin_again(returns == returns_seen + 1 ? returned : InvalidOid);
	returns_seen = returns;
	if (lists_differ)
		marking_list_again();

	more = marking_run(marked, to_mark);
	KILL_POINT("records_marked");
	marked = marking_least();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	lists_differ = shared->books.tables != marking_progress_hash();
	if (shared->books.turn == turn && shared->books.returns == returns && !lists_differ && marked > shared->books.marked)
	{
		shared->books.marked = marked;
		done = marked >= shared->books.to_mark;
	}
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->progress);
	if (done)
		shared_wake_dispatcher(shared);
	return more;
}

/*
 * Deletes some expired records if a round was asked for. Returns whether there
 * is more to do.
 */
static bool
expire(void)
{
	if (!is_expiring && !begin_expiry())
		return false;
	if (table_expiry_run())
		return table_expiry_ms_until_due() == 0;
	KILL_POINT("table_records_expired");
	end_expiry();
	return false;
}

/* Begins a round if one was asked for. Returns whether it was. */
static bool
begin_expiry(void)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	expiry_seen = shared->books.expiries_asked;
	is_expiring = expiry_seen != shared->books.expiries_done;
	LWLockRelease(shared->lock);
	if (is_expiring)
		table_expiry_begin();
	return is_expiring;
}

/* Reports the end of the round that was asked for when this one began. */
static void
end_expiry(void)
{
	is_expiring = false;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (shared->books.turn == turn)
		shared->books.expiries_done = expiry_seen;
	LWLockRelease(shared->lock);
	report_expiry(table_expiry_error());
	shared_wake_dispatcher(shared);
}

/* Reports the error of a round in the views, and in the server log if it is news; "" = there was none. */
static void
report_expiry(const char *error)
{
	bool		had_failed = problem_is_set(PROBLEM_EXPIRY);

	if (error[0] == '\0')
	{
		problem_clear(PROBLEM_EXPIRY);
		if (had_failed)
			ereport(LOG, (errmsg("outbox: expired records can be deleted again")));
	}
	else if (problem_set(PROBLEM_EXPIRY, "Expired records cannot be deleted. Correct the table, its triggers, or what refers to its records. The error is: %s", error))
		ereport(LOG, (errmsg("outbox: expired records cannot be deleted: %s", error)));
}
