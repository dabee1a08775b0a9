/*
 * deferred_count.h
 *		How many messages are deferred, scheduled and dead.
 */
#ifndef OUTBOX_DEFERRED_COUNT_H
#define OUTBOX_DEFERRED_COUNT_H

#include "datatype/timestamp.h"

extern void deferred_count_load(void);
extern void deferred_count_add_scheduled(TimestampTz due);
extern void deferred_count_remove_scheduled(int64 n, TimestampTz next_due);
extern TimestampTz deferred_count_scheduled_due(void);
extern void deferred_count_add_dead(void);
extern void deferred_count_add_returned(int64 n);
extern int64 deferred_count_waiting(void);
extern void deferred_count_settle(int64 waiting);
extern void deferred_count_report(const char *error);

#endif							/* OUTBOX_DEFERRED_COUNT_H */
