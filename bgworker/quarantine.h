/*
 * quarantine.h
 *		Slots that work has failed on.
 */
#ifndef OUTBOX_QUARANTINE_H
#define OUTBOX_QUARANTINE_H

#include "src/ring.h"

extern bool quarantine_holds(RingKind kind, int slot);
extern bool quarantine_has_failed(RingKind kind, int slot);
extern void quarantine_catch(RingKind kind, int slot, const char *doing);
extern void quarantine_passed(RingKind kind, int slot);
extern void quarantine_review(const Rings *rings);

#endif							/* OUTBOX_QUARANTINE_H */
