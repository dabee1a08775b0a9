/*
 * ring_update.h
 *		Changes outbox.ring; the only place that writes that table.
 */
#ifndef OUTBOX_RING_UPDATE_H
#define OUTBOX_RING_UPDATE_H

#include "src/ring/ring.h"

extern bool ring_update_try_lock(RingKind kind, int segment);
extern void ring_update_state(RingKind kind, int segment, SegmentState state);
extern void ring_update_published(RingKind kind, int segment);
extern void ring_update_begin_merge(int target, RingKind kind, const int *sources, int n);
extern void ring_update_finish_merge(int target, int64 keys);
extern void ring_update_abandon_merge(int target);

#endif							/* OUTBOX_RING_UPDATE_H */
