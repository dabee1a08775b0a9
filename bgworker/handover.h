/*
 * handover.h
 *		Tells others than the record ring what has been processed.
 */
#ifndef OUTBOX_HANDOVER_H
#define OUTBOX_HANDOVER_H

#include "bgworker/position.h"

extern void handover_init(void);
extern bool handover_run(Position *position);
extern long handover_ms_until_due(const Position *position);

#endif							/* OUTBOX_HANDOVER_H */
