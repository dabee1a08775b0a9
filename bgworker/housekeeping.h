/*
 * housekeeping.h
 *		What the dispatcher does when there is nothing to publish, or at intervals.
 */
#ifndef OUTBOX_HOUSEKEEPING_H
#define OUTBOX_HOUSEKEEPING_H

#include "bgworker/window/position.h"

extern void housekeeping_init(void);
extern bool housekeeping_run(Position *position, bool busy);
extern bool housekeeping_keep_rings(Position *position, bool busy);
extern long housekeeping_ms_until_due(const Position *position);

#endif							/* OUTBOX_HOUSEKEEPING_H */
