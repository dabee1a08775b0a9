/*
 * blocked_slots.h
 *		Hash slots of a Redis Cluster that cannot be written to.
 */
#ifndef OUTBOX_BLOCKED_SLOTS_H
#define OUTBOX_BLOCKED_SLOTS_H

#include "datatype/timestamp.h"

extern void blocked_slots_note(TimestampTz tried_since);
extern bool blocked_slots_try(void);
extern long blocked_slots_ms_until_try(long longest);

#endif							/* OUTBOX_BLOCKED_SLOTS_H */
