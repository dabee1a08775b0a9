/*
 * reload_pace.c
 *		When what is deferred is read again.
 *
 * Called by deferral.c, which reads it, by those who find that it must be read, and by
 * interrupts.c, which has it read. That takes the longer the more is deferred, and nothing
 * is sent meanwhile. So that one who retries messages one by one does not keep all others
 * waiting, there is a rest after each reading, as long as that took. What is deferred goes on
 * to be returned meanwhile, by what the table has: others have it that messages are dead no
 * more, which later ones may have overtaken, or are gone. Nothing is returned while the
 * dispatcher itself has found that it must read first.
 *
 * A change of destinations is not waited for: what is enqueued after a pause must not be
 * sent. They are read between two windows, so before anything is sent that was returned
 * after the change: it is deferred again, or held. So it is returned nevertheless; else
 * one who sets many destinations one by one would keep it back.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/defer/reload_pace.h"
#include "src/clock.h"
#include "src/shared.h"

/* A rest is no longer than this: the reading may have waited for a lock. */
#define LONGEST_REST_MS	10000

static TimestampTz began;		/* the last reading, by clock_now() */
static TimestampTz rest_ends;	/* likewise; 0 = nothing was read yet */

/* Notes that what is deferred is about to be read. */
void
reload_pace_begin(void)
{
	began = clock_now();
}

/* Notes that it has been read. */
void
reload_pace_end(void)
{
	TimestampTz now = clock_now();

	rest_ends = now + Min(now - began, LONGEST_REST_MS * INT64CONST(1000));
}

/* Has it read again, when that is due, and before anything of it is returned. */
void
reload_pace_ask(void)
{
	(void) pg_atomic_fetch_or_u32(&shared_mine()->reload, RELOAD_UNSETTLED);
}

/* The same without a rest, because what is in memory is wrong; destinations are read, too. */
void
reload_pace_ask_at_once(void)
{
	(void) pg_atomic_fetch_or_u32(&shared_mine()->reload, RELOAD_DESTINATIONS | RELOAD_UNSETTLED);
}

/* Check whether it is to be read again: what is in memory may lack some. */
bool
reload_pace_is_asked(void)
{
	return pg_atomic_read_u32(&shared_mine()->reload) != 0;
}

/* Check whether nothing of it may be returned before that. */
bool
reload_pace_comes_first(void)
{
	return (pg_atomic_read_u32(&shared_mine()->reload) & RELOAD_UNSETTLED) != 0;
}

/* Returns how many milliseconds of the rest are left. */
long
reload_pace_rest_ms(void)
{
	return TimestampDifferenceMilliseconds(clock_now(), rest_ends);
}

/* Returns how many milliseconds until it is read again; PG_INT32_MAX = nobody has asked for it. */
long
reload_pace_ms_until(void)
{
	uint32		asked = pg_atomic_read_u32(&shared_mine()->reload);

	if (asked == 0)
		return PG_INT32_MAX;
	return asked & RELOAD_DESTINATIONS ? 0 : reload_pace_rest_ms();
}
