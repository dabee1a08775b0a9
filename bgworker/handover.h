/*
 * handover.h
 *		Tells others than the record ring what has been processed.
 */
#ifndef OUTBOX_HANDOVER_H
#define OUTBOX_HANDOVER_H

#include "bgworker/instance.h"
#include "bgworker/position.h"
#include "src/socket_wait.h"

extern void handover_init(LinkAttend attend);
extern void handover_set_instance(const Instance *instance);
extern bool handover_run(Position *position);
extern void handover_attend(const Position *position);
extern bool handover_is_sound(void);
extern long handover_ms_until_due(const Position *position);

#endif							/* OUTBOX_HANDOVER_H */
