/*
 * fence_claims.h
 *		Reads the fences of lanes and claims them.
 */
#ifndef OUTBOX_FENCE_CLAIMS_H
#define OUTBOX_FENCE_CLAIMS_H

#include "bgworker/window/position.h"

extern bool fence_claims_bar_others(int64 published);
extern bool fence_claims_take(bool another_published, int64 published);
extern bool fence_claims_renew(void);
extern bool fence_claims_try_blocked(int patience_ms, bool *freed);
extern bool fence_claims_use_wanted(const Position *position);

#endif							/* OUTBOX_FENCE_CLAIMS_H */
