/*
 * retry_pace.c
 *		When refused messages, and destinations that refuse, are tried again.
 *
 * Called by deferral.c and due_messages.c. The first message of a destination is
 * its probe: after each attempt it rests for longer. With thousands of
 * destinations that refuse messages a probe is always due, so refused probes are
 * limited to a fixed share of the dispatcher's time.
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "bgworker/defer/retry_pace.h"
#include "src/clock.h"
#include "src/settings.h"

#define PROBE_SHARE		10

/*
 * A round counts as no longer than this: Redis may have been away meanwhile.
 */
#define LONGEST_ROUND	(500 * INT64CONST(1000))

static TimestampTz began;		/* by clock_now(); 0 = no probe is under way */
static bool refused;			/* one of the probes was refused */
static TimestampTz next;		/* no probe before then, by clock_now() */

/*
 * Returns when a message is tried again that was refused so many times. The
 * delay doubles with each attempt; the jitter prevents many attempts at the same
 * time.
 */
TimestampTz
retry_pace_next_attempt(int attempts)
{
	double		delay = Min((double) outbox_retry_delay * pow(2, Min(attempts - 1, 30)),
							(double) outbox_retry_max_delay);

	delay *= 0.8 + 0.4 * pg_prng_double(&pg_global_prng_state);
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), (int64) delay);
}

/* Returns when the next probes may be sent, by clock_now(). */
TimestampTz
retry_pace_next_probe(void)
{
	return next;
}

/* Notes that probes are about to be sent. */
void
retry_pace_begin_probes(void)
{
	began = clock_now();
	refused = false;
}

/* Notes that one of the probes was refused. */
void
retry_pace_note_refused_probe(void)
{
	refused = true;
}

/*
 * All probes have been answered: if any was refused, those that are due next
 * wait for a while.
 */
void
retry_pace_end_probes(void)
{
	TimestampTz now = clock_now();

	if (began == 0)
		return;
	next = refused ? now + (PROBE_SHARE - 1) * Min(now - began, LONGEST_ROUND) : 0;
	began = 0;
}
