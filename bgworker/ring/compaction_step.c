/*
 * compaction_step.c
 *		Merges segments of records, and of the history, whenever there are enough.
 *
 * Called by housekeeping.c between windows, one bounded step at a time. Which
 * segments are merged is decided in compaction_choice.c; compaction_merge.c merges
 * them. An ERROR ends the merge but not the dispatcher: the sources stay what they
 * are, the target is emptied, and the segment that raised it is left alone for a
 * while (segment_quarantine.c). Others are merged in the next round of cleanup, not at
 * once: most failures are not of one segment.
 */
#include "postgres.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/compaction_choice.h"
#include "bgworker/ring/compaction_merge.h"
#include "bgworker/ring/compaction_step.h"
#include "bgworker/ring/segment_quarantine.h"

static bool awake = true;		/* there may be something to do */

static void take_step(int64 step_us);

/* Notes that there may be something to merge: segments became quiet or were published. */
void
compaction_wake(void)
{
	awake = true;
}

/*
 * Does one step, if there is anything to do. Returns true if there is more to
 * do at once. Begins and ends its own transactions.
 */
bool
compaction_step(int64 step_us)
{
	volatile bool failed = false;

	if (!awake || !transaction_begin("compacting records"))
		return false;
	PG_TRY();
	{
		take_step(step_us);
	}
	PG_CATCH();
	{
		segment_quarantine_catch_touched(COMPACTION_FAILED);
		failed = true;
	}
	PG_END_TRY();
	if (failed)
	{
		merge_give_up();
		awake = false;
	}
	return awake;
}

/* Does one step in the open transaction, and ends it. */
static void
take_step(int64 step_us)
{
	Rings		rings;
	Merge		merge;

	rings_read(&rings);
	segment_quarantine_touch(RING_RECORD, rings.ring[RING_RECORD].current);
	if (merge_find(&rings, &merge))
		awake = merge_continue(&rings, &merge, step_us);
	else if (compaction_choice_make(&rings, &merge))
		awake = merge_begin(&rings, &merge);
	else
	{
		transaction_commit();
		awake = false;
	}
}
