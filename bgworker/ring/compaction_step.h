/*
 * compaction_step.h
 *		Merges segments of records, and of the history, step by step.
 */
#ifndef OUTBOX_COMPACTION_STEP_H
#define OUTBOX_COMPACTION_STEP_H

extern void compaction_wake(void);
extern bool compaction_step(int64 step_us);

#endif							/* OUTBOX_COMPACTION_STEP_H */
