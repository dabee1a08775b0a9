/*
 * expiry.h
 *		Decides how long the contents of segments are kept, and retires segments.
 */
#ifndef OUTBOX_EXPIRY_H
#define OUTBOX_EXPIRY_H

#include "bgworker/window/position.h"
#include "src/ring/ring.h"

extern int64 expiry_time_to_live(RingKind kind);
extern bool expiry_is_due(RingKind kind, int n, const Segment *segment);
extern bool expiry_retire(RingKind kind, int n, FullTransactionId tx, const Position *position);
extern bool expiry_delete_forgotten(void);

#endif							/* OUTBOX_EXPIRY_H */
