/*
 * report.h
 *		The dispatcher's report in shared memory.
 */
#ifndef OUTBOX_REPORT_H
#define OUTBOX_REPORT_H

#include "src/shared.h"

/* Messages in outbox.deferred. */
typedef struct DeferredCounts
{
	int64		waiting;
	int64		held;			/* of these, those that a dead one holds back */
	int64		settled;		/* of these, those that are in no unpublished
								 * window */
	TimestampTz oldest;			/* when the first of them was enqueued; 0 =
								 * none waits */
	int64		returned;		/* to the log, since this was reported last */
	int64		scheduled;
	int64		dead;
	int64		refused;		/* destinations that refuse messages */
	int64		paused;			/* destinations that are paused, and have
								 * messages waiting */
} DeferredCounts;

extern void report_begin(void);
extern void report_end(void);
extern void report_retention(void);
extern void report_state(DispatcherState state);
extern void report_redis(RedisState state, const char *error);
extern void report_published(int64 published, int64 propagated);
extern void report_left_out(const text *dest);
extern void report_sent(int64 sent);
extern void report_nothing_left_out(void);
extern void report_deferred(const DeferredCounts *counts, const char *error);
extern void report_cleanup(void);

#endif							/* OUTBOX_REPORT_H */
