/*
 * housekeeping.c
 *		What the dispatcher does when there is nothing to publish, or at intervals.
 *
 * Called by dispatcher.c in its loop. The position is noted (closing_window.c), and the
 * lease is renewed; segments are rotated, expire and are emptied (cleanup_round.c),
 * published records are compacted, and filters built. Each call does only a little,
 * because messages may come at any time.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/timestamp.h"

#include "bgworker/closing_window.h"
#include "bgworker/connection/fences.h"
#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/redis_state.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/housekeeping.h"
#include "bgworker/process/report.h"
#include "bgworker/propagate/propagation.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/ring/cleanup_round.h"
#include "bgworker/ring/compaction_step.h"
#include "bgworker/ring/filter_builder.h"
#include "src/clock.h"
#include "src/settings.h"
#include "src/shared.h"

#define ROUND_MS			1000	/* between rounds of cleanup while
									 * segments fill */

/*
 * The time after which a step of compaction, or of building a filter, ends:
 * messages wait meanwhile.
 */
#define IDLE_STEP_US		(5 * INT64CONST(1000))
#define BUSY_STEP_US		INT64CONST(1000)	/* while there are messages */

static TimestampTz last_cleanup;
static bool is_expiring;		/* records expire in custom record tables */
static uint64 cleanups_seen;	/* number of calls of outbox_cleanup() when
								 * the last round began */
static uint64 cleanups_answered;
static TimestampTz last_round;
static XLogRecPtr last_round_redo;	/* of the last checkpoint at that time */
static int64 last_round_window; /* newest window at that time */
static bool round_changed;		/* a state, so another round may do more */

static bool is_asked_for(void);
static bool round_is_due(const Position *position);
static void clean_up(Position *position);
static void end_cleanup_if_done(void);
static bool nothing_is_lost(const Position *position);
static bool run_round(Position *position, bool may_expire);

/* Prepares for use; called once, when the dispatcher starts. */
void
housekeeping_init(void)
{
	cleanups_answered = pg_atomic_read_u64(&shared_mine()->cleanups_done);
}

/*
 * Does what is due; `busy` tells that there were messages. Returns whether there
 * is more to do.
 */
bool
housekeeping_run(Position *position, bool busy)
{
	if (!busy)
		closing_window_when_idle(position);
	redis_state_renew_lease();
	if (is_expiring)
		end_cleanup_if_done();
	if ((!is_expiring && is_asked_for()) ||
		(outbox_cleanup_interval >= 0 && clock_ms_until_next(last_cleanup, outbox_cleanup_interval) <= 0))
		clean_up(position);
	return housekeeping_keep_rings(position, busy);
}

/*
 * Maintains the rings; also while dispatch is off, because records are written
 * all the same. `busy` tells that there were messages. Returns whether there is
 * more to do.
 */
bool
housekeeping_keep_rings(Position *position, bool busy)
{
	int64		step_us = busy ? BUSY_STEP_US : IDLE_STEP_US;
	bool		more;

	if (round_is_due(position))
		(void) run_round(position, false);
	more = compaction_step(step_us);
	more |= filter_builder_step(step_us);
	return more;
}

/* Returns how long until housekeeping_run() has something to do. */
long
housekeeping_ms_until_due(const Position *position)
{
	long		ms = closing_window_ms_until_due(position);

	if (outbox_cleanup_interval >= 0)
		ms = Min(ms, clock_ms_until_next(last_cleanup, outbox_cleanup_interval));
	return ms;
}

/* Check whether outbox_cleanup() was called. */
static bool
is_asked_for(void)
{
	return pg_atomic_read_u64(&shared_mine()->cleanups_asked) != cleanups_answered;
}

/*
 * Check whether a segment is full, or what the last round began may go on. A
 * checkpoint may make a segment full at once.
 */
static bool
round_is_due(const Position *position)
{
	XLogRecPtr	redo = GetRedoRecPtr();

	if (redo == last_round_redo && clock_ms_until_next(last_round, ROUND_MS) > 0)
		return false;
	last_round = clock_now();
	last_round_redo = redo;
	return round_changed || position->opened.number != last_round_window || cleanup_round_is_due();
}

/* Runs a round that also expires records, at intervals or for outbox_cleanup(). */
static void
clean_up(Position *position)
{
	uint64		asked = pg_atomic_read_u64(&shared_mine()->cleanups_asked);

	if (!run_round(position, true))
		return;
	last_cleanup = clock_now();

	/*
	 * A statement that hangs in a custom record table must not delay our own
	 * segments.
	 */
	if (is_expiring)
		return;
	cleanups_answered = cleanups_seen = asked;
	is_expiring = true;
	if (nothing_is_lost(position))
		supervision_ask_for_expiry();
	end_cleanup_if_done();
}

/* Ends the round if the bookkeeper has finished its part, which may take long. */
static void
end_cleanup_if_done(void)
{
	if (!supervision_expiry_has_ended())
		return;
	is_expiring = false;
	report_cleanup();
	pg_atomic_write_u64(&shared_mine()->cleanups_done, cleanups_seen);
	ConditionVariableBroadcast(&shared_mine()->progress);
}

/*
 * Check whether Redis and the stores are there and still have what they were
 * sent, so that it need not be kept here. Where no message was ever enqueued no
 * Redis is needed: the database may be the store of others.
 */
static bool
nothing_is_lost(const Position *position)
{
	bool		redis_has_all = redis_session_is_open() && redis_session_blocked(NULL) == NULL && position->sent >= position->published;

	return (redis_has_all || position->opened.messages == 0) && propagation_is_sound();
}

/* Runs a round of cleanup within the limits of the moment. */
static bool
run_round(Position *position, bool may_expire)
{
	CleanupLimits limits = {.may_expire = may_expire};

	destination_verify_next();
	if (may_expire && redis_session_is_open() && position->sent >= position->published &&
		!fences_settle(position))
		redis_state_note_failure();
	limits.may_empty = nothing_is_lost(position);
	last_round = clock_now();
	last_round_window = position->opened.number;
	compaction_wake();
	return cleanup_round_run(position, &limits, &round_changed);
}
