/*
 * compaction_choice.h
 *		Chooses segments of records, and of the history, to be merged.
 */
#ifndef OUTBOX_COMPACTION_CHOICE_H
#define OUTBOX_COMPACTION_CHOICE_H

#include "bgworker/ring/compaction_merge.h"

extern bool compaction_choice_make(const Rings *rings, Merge *merge);

#endif							/* OUTBOX_COMPACTION_CHOICE_H */
