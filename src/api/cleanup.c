/*
 * cleanup.c
 *		outbox_cleanup(): asks the dispatcher for a round of expiry, and waits for it.
 *
 * The work is done by the dispatcher (bgworker/housekeeping.c). Nothing may be
 * locked while this waits, except what the caller has locked already.
 */
#include "postgres.h"

#include "fmgr.h"
#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "src/api/caller_check.h"
#include "src/api/wait.h"
#include "src/clock.h"
#include "src/shared.h"

/*
 * The dispatcher cannot answer while another session waits to drop the
 * extension, perhaps for the caller.
 */
#define CLEANUP_TIMEOUT_MS	60000

static bool dispatch_is_off(DatabaseShared *shared);

PG_FUNCTION_INFO_V1(outbox_cleanup);

/* outbox_cleanup() */
Datum
outbox_cleanup(PG_FUNCTION_ARGS)
{
	DatabaseShared *shared = caller_check_preloaded();
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), CLEANUP_TIMEOUT_MS);
	uint64		removed;
	uint64		wanted;

	caller_check_can_write("outbox_cleanup()");
	removed = pg_atomic_read_u64(&shared->records_removed);
	wanted = pg_atomic_add_fetch_u64(&shared->cleanups_asked, 1);
	shared_wake_dispatcher(shared);

	ConditionVariablePrepareToSleep(&shared->progress);
	while (pg_atomic_read_u64(&shared->cleanups_done) < wanted)
	{
		if (dispatch_is_off(shared))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot clean up while dispatch is off"),
					 errhint("Set \"outbox.dispatch\" to \"on\".")));
		if (!wait_for_progress(shared, deadline))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the dispatcher did not answer within %d s", CLEANUP_TIMEOUT_MS / 1000),
					 errhint("The view outbox.status shows what it is doing.")));
	}
	ConditionVariableCancelSleep();

	PG_RETURN_INT64(pg_atomic_read_u64(&shared->records_removed) - removed);
}

/* Check whether the dispatcher reports that outbox.dispatch is off. */
static bool
dispatch_is_off(DatabaseShared *shared)
{
	bool		is_off;

	LWLockAcquire(shared->lock, LW_SHARED);
	is_off = shared->report.state == DISPATCHER_OFF;
	LWLockRelease(shared->lock);
	return is_off;
}
