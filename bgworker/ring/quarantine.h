/*
 * quarantine.h
 *		Segments on which work has failed.
 */
#ifndef OUTBOX_QUARANTINE_H
#define OUTBOX_QUARANTINE_H

#include "src/ring/ring.h"

extern bool quarantine_holds(RingKind kind, int segment);
extern bool quarantine_has_failed(RingKind kind, int segment);
extern void quarantine_catch(RingKind kind, int segment, const char *message);
extern void quarantine_touch(RingKind kind, int segment);
extern void quarantine_catch_touched(const char *message);
extern void quarantine_release(RingKind kind, int segment);
extern void quarantine_review(const Rings *rings);

#endif							/* OUTBOX_QUARANTINE_H */
