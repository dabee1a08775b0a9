/*
 * report.c
 *		The dispatcher's report in shared memory; the only place that writes it.
 *
 * Called by all parts of the dispatcher; read by outbox.status and the sessions.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "bgworker/process/report.h"
#include "src/settings.h"

/* Notes that a dispatcher has started. */
void
report_begin(void)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.pid = MyProcPid;
	shared->report.state = DISPATCHER_STARTING;
	shared->report.redis = REDIS_UNKNOWN;
	shared->report.redis_error[0] = '\0';
	LWLockRelease(shared->lock);
	report_retention();
	report_nothing_left_out();
}

/* Tells sessions the settings by which records are kept. Called when settings have been read. */
void
report_retention(void)
{
	pg_atomic_write_u32(&shared_mine()->retention, outbox_retention);
	pg_atomic_write_u32(&shared_mine()->replay_window, outbox_replay_window);
}

/* Notes that it has ended. Called when the process exits. */
void
report_end(void)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.pid = 0;
	shared->report.state = DISPATCHER_NONE;
	shared->report.redis = REDIS_UNKNOWN;
	LWLockRelease(shared->lock);
}

/* Reports what the dispatcher does. */
void
report_state(DispatcherState state)
{
	DatabaseShared *shared = shared_mine();

	if (shared->report.state == state)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.state = state;
	LWLockRelease(shared->lock);
}

/* Reports whether Redis can be used; `error` says why not, "" = it can. */
void
report_redis(RedisState state, const char *error)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.redis = state;
	strlcpy(shared->report.redis_error, error, sizeof(shared->report.redis_error));
	LWLockRelease(shared->lock);
}

/*
 * Reports how far windows are known to be in Redis, and their receipts
 * propagated. Wakes the sessions that wait for this.
 */
void
report_published(int64 published, int64 propagated)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.published = published;
	shared->report.propagated = propagated;
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->progress);
}

/* Reports that a message of a destination is left out. Its window must not be reported as sent before. */
void
report_left_out(const text *dest)
{
	DatabaseShared *shared = shared_mine();

	/* Only we write it. */
	if (destination_set_includes(&shared->report.left_out, dest))
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	destination_set_add(&shared->report.left_out, dest);
	LWLockRelease(shared->lock);
}

/* Reports how far windows are sent of which something was left out. Wakes the sessions that wait for this. */
void
report_sent(int64 sent)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.sent = sent;
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->progress);
}

/* Reports that nothing is left out, or that it is not known. */
void
report_nothing_left_out(void)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.sent = -1;
	memset(&shared->report.left_out, 0, sizeof(shared->report.left_out));
	LWLockRelease(shared->lock);
}

/* Reports how many messages are deferred, and the newest reason if `error` is not NULL. */
void
report_deferred(const DeferredCounts *counts, const char *error)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.deferred_known = true;
	shared->report.deferred = counts->waiting;
	shared->report.held = counts->held;
	shared->report.deferred_settled = counts->settled;
	shared->report.deferred_oldest = counts->oldest;
	shared->report.returned += counts->returned;
	shared->report.scheduled = counts->scheduled;
	shared->report.dead = counts->dead;
	shared->report.deferred_paused = counts->paused > 0;
	if (error)
		strlcpy(shared->report.deferred_error, error, sizeof(shared->report.deferred_error));
	else if (counts->refused == 0)
		shared->report.deferred_error[0] = '\0';
	LWLockRelease(shared->lock);
}

/* Notes that a round of cleanup has ended. */
void
report_cleanup(void)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.last_cleanup = GetCurrentTimestamp();
	LWLockRelease(shared->lock);
}
