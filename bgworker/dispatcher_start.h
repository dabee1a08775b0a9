/*
 * dispatcher_start.h
 *		What a dispatcher reads from the tables when it starts.
 */
#ifndef OUTBOX_DISPATCHER_START_H
#define OUTBOX_DISPATCHER_START_H

#include "bgworker/window/position.h"

extern void dispatcher_start_load(Position *position);

#endif							/* OUTBOX_DISPATCHER_START_H */
