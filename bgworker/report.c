/*
 * report.c
 *		What the dispatcher tells about itself: the one place that writes its
 *		report in shared memory.
 *
 * Called by all parts of the dispatcher; read by outbox.status and the sessions.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "bgworker/report.h"

/* A dispatcher starts. */
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
}

/* It ends. Called when the process exits. */
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
 * How far windows are known to be in Redis, and their receipts propagated.
 * Wakes those who wait for it.
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

/* How much is deferred, and why if that is news. */
void
report_deferred(const DeferredCounts *counts, const char *error)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.deferred = counts->waiting;
	shared->report.deferred_settled = counts->settled;
	shared->report.deferred_oldest = counts->oldest;
	shared->report.scheduled = counts->scheduled;
	shared->report.dead = counts->dead;
	if (error)
		strlcpy(shared->report.deferred_error, error, sizeof(shared->report.deferred_error));
	else if (counts->waiting == 0)
		shared->report.deferred_error[0] = '\0';
	LWLockRelease(shared->lock);
}

/* A round of cleanup has ended. */
void
report_cleanup(void)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.last_cleanup = GetCurrentTimestamp();
	LWLockRelease(shared->lock);
}
