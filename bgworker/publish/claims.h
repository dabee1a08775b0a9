/*
 * claims.h
 *		Reads the fences of lanes and claims them.
 */
#ifndef OUTBOX_CLAIMS_H
#define OUTBOX_CLAIMS_H

#include "bgworker/window/position.h"

extern bool claims_bar_others(void);
extern bool claims_take(void);
extern bool claims_try_blocked(int patience_ms, bool *freed);
extern bool claims_use_wanted(const Position *position);

#endif							/* OUTBOX_CLAIMS_H */
