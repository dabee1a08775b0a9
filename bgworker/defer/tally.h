/*
 * tally.h
 *		How many messages are deferred, scheduled and dead.
 */
#ifndef OUTBOX_TALLY_H
#define OUTBOX_TALLY_H

#include "datatype/timestamp.h"

extern void tally_load(void);
extern void tally_add_scheduled(TimestampTz due);
extern void tally_remove_scheduled(int64 n, TimestampTz next_due);
extern TimestampTz tally_scheduled_due(void);
extern void tally_add_dead(void);
extern int64 tally_waiting(void);
extern void tally_settle(int64 waiting);
extern void tally_report(const char *error);

#endif							/* OUTBOX_TALLY_H */
