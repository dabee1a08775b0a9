/*
 * probe_pace.c
 *		When destinations that refuse messages may be tried again.
 *
 * Called by deferral.c and due_messages.c. With thousands of destinations that refuse
 * messages a probe is always due, so refused probes are limited to a fixed
 * share of the dispatcher's time.
 */
#include "postgres.h"

#include "bgworker/defer/probe_pace.h"
#include "src/clock.h"

#define PROBE_SHARE		10

/*
 * A round counts as no longer than this: Redis may have been away meanwhile.
 */
#define LONGEST_ROUND	(500 * INT64CONST(1000))

static TimestampTz began;		/* by clock_now(); 0 = no probe is under way */
static bool refused;			/* one of the probes was refused */
static TimestampTz next;		/* no probe before then, by clock_now() */

/* Returns when the next probes may be sent, by clock_now(). */
TimestampTz
probe_pace_next(void)
{
	return next;
}

/* Notes that probes are about to be sent. */
void
probe_pace_begin(void)
{
	began = clock_now();
	refused = false;
}

/* Notes that one of the probes was refused. */
void
probe_pace_note_refusal(void)
{
	refused = true;
}

/*
 * All probes have been answered: if any was refused, those that are due next
 * wait for a while.
 */
void
probe_pace_end(void)
{
	TimestampTz now = clock_now();

	if (began == 0)
		return;
	next = refused ? now + (PROBE_SHARE - 1) * Min(now - began, LONGEST_ROUND) : 0;
	began = 0;
}
