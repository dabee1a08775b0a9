/*
 * table_pace.c
 *		How long work on a custom record table rests after a statement.
 *
 * Called by marking.c and table_expiry.c, in the bookkeeper. Statements on these
 * tables execute code of their owners, and all tables share one process. A
 * statement that takes long and succeeds is not an error, but a table where
 * each one does must not keep the others from their turn. So slow work rests
 * for as long as its statement took, and these rests follow each other. Thus
 * all slow work together takes half of the time at most, and each table gets
 * its turn.
 *
 * It knows no tables, and must never prevent work forever. So a rest must be asked for only
 * by work that takes it: others would follow it, and each round put them off further.
 */
#include "postgres.h"

#include "bgworker/propagate/table_pace.h"
#include "src/clock.h"

#define SLOW_MS		100			/* a statement that takes longer is slow */

static TimestampTz rested_until;	/* the end of all rests, one after the
									 * other */

/*
 * Returns until when the work rests whose statement began at `begun` and has
 * just ended, by clock_now(); 0 = it was quick.
 */
TimestampTz
table_pace_rest_after(TimestampTz begun)
{
	TimestampTz took = clock_now() - begun;

	if (took < SLOW_MS * INT64CONST(1000))
		return 0;
	rested_until = Max(rested_until, begun) + 2 * took;
	return rested_until;
}
