/*
 * segment_quarantine.h
 *		Segments on which work has failed.
 */
#ifndef OUTBOX_SEGMENT_QUARANTINE_H
#define OUTBOX_SEGMENT_QUARANTINE_H

#include "src/ring/ring.h"

extern bool segment_quarantine_holds(RingKind kind, int segment);
extern bool segment_quarantine_has_failed(RingKind kind, int segment);
extern void segment_quarantine_catch(RingKind kind, int segment, const char *message);
extern void segment_quarantine_touch(RingKind kind, int segment);
extern void segment_quarantine_catch_touched(const char *message);
extern void segment_quarantine_release(RingKind kind, int segment);
extern void segment_quarantine_review(RingKind kind, const Ring *ring, bool all_is_tried);

#endif							/* OUTBOX_SEGMENT_QUARANTINE_H */
