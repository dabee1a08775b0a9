/*
 * compaction_merge.h
 *		Merges the keys of segments into one segment of the history.
 */
#ifndef OUTBOX_COMPACTION_MERGE_H
#define OUTBOX_COMPACTION_MERGE_H

#include "src/ring/ring.h"

/* The message of an error in compaction; for segment_quarantine_catch_touched(). */
#define COMPACTION_FAILED	"could not compact outbox.%s_%d: %s"

/* What is merged into what. */
typedef struct Merge
{
	int			target;			/* segment of the history; -1 = nothing is
								 * merged */
	RingKind	kind;			/* of the sources */
	int			n;
	int			sources[MAX_SEGMENTS];
} Merge;

extern bool merge_find(const Rings *rings, Merge *merge);
extern bool merge_begin(const Rings *rings, const Merge *merge);
extern bool merge_continue(const Rings *rings, const Merge *merge, int64 step_us);
extern void merge_give_up(void);
extern void merge_forget_endpoints(int target);

#endif							/* OUTBOX_COMPACTION_MERGE_H */
