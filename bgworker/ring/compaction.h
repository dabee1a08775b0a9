/*
 * compaction.h
 *		Merges segments of records, and of the history, step by step.
 */
#ifndef OUTBOX_COMPACTION_H
#define OUTBOX_COMPACTION_H

extern void compaction_wake(void);
extern bool compaction_step(int64 step_us);

#endif							/* OUTBOX_COMPACTION_H */
