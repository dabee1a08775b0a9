/*
 * reconnect_pace.c
 *		How long the dispatcher waits before it connects to Redis again.
 *
 * Called by redis_state.c. After the first failure it tries again at once: Redis may have
 * been restarted or have forgotten the script. After that the pause grows up to
 * LAST_RETRY_MS. It is random in part, so that not all dispatchers of a server come at the
 * same moment.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "bgworker/connection/reconnect_pace.h"
#include "src/clock.h"

#define FIRST_RETRY_MS		20
#define LAST_RETRY_MS		400 /* Redis is found again within a second */

static int	retry_ms;			/* 0 = nothing has failed, and the next try is
								 * at once */
static TimestampTz next_try;

/* Returns how long until the next try. */
long
reconnect_pace_ms_until_try(void)
{
	return clock_ms_until(next_try);
}

/* Check whether a try has failed since the last success. */
bool
reconnect_pace_has_failed(void)
{
	return retry_ms != 0;
}

/* Notes that connecting has failed, or that the connection has broken. */
void
reconnect_pace_note_failure(void)
{
	next_try = TimestampTzPlusMilliseconds(clock_now(), retry_ms / 2 + pg_prng_uint64_range(&pg_global_prng_state, 0, retry_ms / 2));
	retry_ms = retry_ms == 0 ? FIRST_RETRY_MS : Min(retry_ms * 2, LAST_RETRY_MS);
}

/* Notes that the connection was given up, for a reason that is none of Redis. */
void
reconnect_pace_note_given_up(void)
{
	next_try = TimestampTzPlusMilliseconds(clock_now(), FIRST_RETRY_MS);
}

/* Notes that Redis works, but another server holds the lease. */
void
reconnect_pace_note_foreign_lease(void)
{
	next_try = TimestampTzPlusMilliseconds(clock_now(), LAST_RETRY_MS);
}

/* Notes that messages were published, or that there is nothing to publish. */
void
reconnect_pace_note_success(void)
{
	retry_ms = 0;
}
