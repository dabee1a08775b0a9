/*
 * emptying.h
 *		Truncates segments that are no longer read.
 */
#ifndef OUTBOX_EMPTYING_H
#define OUTBOX_EMPTYING_H

#include "src/ring/ring.h"

extern bool emptying_run(RingKind kind, int n, const Segment *segment);

#endif							/* OUTBOX_EMPTYING_H */
