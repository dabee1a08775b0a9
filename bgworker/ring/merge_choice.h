/*
 * merge_choice.h
 *		Chooses segments of records, and of the history, to be merged.
 */
#ifndef OUTBOX_MERGE_CHOICE_H
#define OUTBOX_MERGE_CHOICE_H

#include "bgworker/ring/merge.h"

extern bool merge_choice_make(const Rings *rings, Merge *merge);

#endif							/* OUTBOX_MERGE_CHOICE_H */
