/*
 * blocked_slots.c
 *		Hash slots of a Redis Cluster that cannot be written to, and when they are tried again.
 *
 * Called by redis_state.c. Messages for other slots are sent meanwhile. Which slots these
 * are, the session knows (redis_session.c); here is when they are tried, and what
 * administrators are told.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/connection/blocked_slots.h"
#include "bgworker/connection/redis_hint.h"
#include "bgworker/connection/redis_session.h"
#include "bgworker/process/report.h"
#include "src/clock.h"
#include "src/problem.h"
#include "src/settings.h"

#define FIRST_RETRY_MS		20
#define LAST_RETRY_MS		1000	/* others go on meanwhile */
#define SHARE_OF_TIME		10	/* which takes at most a tenth of the time */
#define TELL_AFTER_MS		10000	/* a slot that moves is blocked for
									 * moments */

static TimestampTz blocked_since;	/* 0 = all slots can be written to */
static bool is_told;			/* the log says so */
static int	retry_ms;
static TimestampTz next_try;

static void tell_of(const char *why, int slots);
static void end(void);

/*
 * Tries blocked slots again, if there are any and that is due. If one can be written to,
 * the links are closed: the next connection uses all of them. Must be called only when
 * nothing is under way. Returns false if the links failed.
 */
bool
blocked_slots_try(void)
{
	TimestampTz begun = clock_now();
	bool		freed;

	if (redis_session_blocked(NULL) == NULL || begun < next_try)
		return true;
	if (!redis_session_try_blocked(Max(LAST_RETRY_MS, outbox_connect_timeout / 5), &freed))
		return false;
	if (!freed)
		blocked_slots_note(begun);
	return true;
}

/* Returns how long until they are tried again, but no longer than `longest` ms. */
long
blocked_slots_ms_until_try(long longest)
{
	return redis_session_blocked(NULL) == NULL ? longest : Min(longest, clock_ms_until(next_try));
}

/* Notes whether there are hash slots that cannot be written to; what was done since then has found that out. */
void
blocked_slots_note(TimestampTz tried_since)
{
	TimestampTz now = clock_now();
	int			slots;
	const char *why = redis_session_blocked(&slots);

	if (why == NULL)
	{
		end();
		return;
	}
	if (blocked_since == 0)
	{
		blocked_since = now;
		retry_ms = 0;
	}
	retry_ms = retry_ms == 0 ? FIRST_RETRY_MS : Min(retry_ms * 2, LAST_RETRY_MS);
	next_try = now + Max(retry_ms * INT64CONST(1000), SHARE_OF_TIME * (now - tried_since));
	report_redis(REDIS_UP, why);
	if (now - blocked_since > TELL_AFTER_MS * INT64CONST(1000))
		tell_of(why, slots);
}

/* Tells of slots that have been blocked for a while; `why` is of one of them. */
static void
tell_of(const char *why, int slots)
{
	if (!is_told)
		ereport(LOG, (errmsg_plural("outbox: %d hash slot of the Redis Cluster cannot be written to: %s",
									"outbox: %d hash slots of the Redis Cluster cannot be written to: %s", slots, slots, why),
					  errdetail("Messages for other hash slots are sent.")));
	is_told = true;
	problem_set(PROBLEM_SLOTS,
				ngettext("%d hash slot of the Redis Cluster cannot be written to, so messages for it wait: %s. Messages for other hash slots are sent. %s This is retried automatically.",
						 "%d hash slots of the Redis Cluster cannot be written to, so messages for them wait: %s. Messages for other hash slots are sent. %s This is retried automatically.", slots),
				slots, why, redis_hint(why));
}

/* Notes that all slots can be written to. */
static void
end(void)
{
	if (is_told)
		ereport(LOG, (errmsg("outbox: all hash slots of the Redis Cluster can be written to again")));
	is_told = false;
	blocked_since = 0;
	problem_clear(PROBLEM_SLOTS);
}
