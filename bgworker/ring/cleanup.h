/*
 * cleanup.h
 *		Rotation of the rings, and expiry.
 */
#ifndef OUTBOX_CLEANUP_H
#define OUTBOX_CLEANUP_H

#include "bgworker/publish/position.h"

/* What a round may do. */
typedef struct CleanupLimits
{
	bool		may_empty;		/* not while Redis is away, nor while a loss
								 * of it is made up */
	bool		may_expire;		/* by the clock, or when asked */
} CleanupLimits;

extern bool cleanup_is_due(void);
extern bool cleanup_run(Position *position, const CleanupLimits *limits, bool *changed);

#endif							/* OUTBOX_CLEANUP_H */
