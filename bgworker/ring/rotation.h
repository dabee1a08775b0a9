/*
 * rotation.h
 *		Makes another segment of a ring current.
 */
#ifndef OUTBOX_ROTATION_H
#define OUTBOX_ROTATION_H

#include "bgworker/window/position.h"
#include "src/ring/ring.h"

extern int	rotation_next(RingKind kind, const Ring *ring);
extern bool rotation_measure_current(RingKind kind, const Ring *ring);
extern bool rotation_run(RingKind kind, int next, const Ring *ring, const Position *position);

#endif							/* OUTBOX_ROTATION_H */
