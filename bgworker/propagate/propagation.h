/*
 * propagation.h
 *		Propagates the ids of processed messages to stores and custom record tables.
 */
#ifndef OUTBOX_PROPAGATION_H
#define OUTBOX_PROPAGATION_H

#include "bgworker/identity/instance.h"
#include "bgworker/window/position.h"
#include "src/redis/socket_wait.h"

extern void propagation_init(LinkAttend attend);
extern void propagation_set_instance(const Instance *instance);
extern bool propagation_may_wait(void);
extern bool propagation_run(Position *position);
extern void propagation_attend(const Position *position);
extern bool propagation_is_sound(void);
extern long propagation_ms_until_due(const Position *position);

#endif							/* OUTBOX_PROPAGATION_H */
