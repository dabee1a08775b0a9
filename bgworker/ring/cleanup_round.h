/*
 * cleanup_round.h
 *		Runs rounds in which each segment is brought into its next state.
 */
#ifndef OUTBOX_CLEANUP_ROUND_H
#define OUTBOX_CLEANUP_ROUND_H

#include "bgworker/window/position.h"

/* What a round may do. */
typedef struct CleanupLimits
{
	bool		may_empty;		/* not while Redis is away, nor while messages
								 * that it lost are sent again */
	bool		may_expire;		/* at intervals, or when asked */
} CleanupLimits;

extern bool cleanup_round_is_due(void);
extern bool cleanup_round_run(Position *position, const CleanupLimits *limits, bool *changed);

#endif							/* OUTBOX_CLEANUP_ROUND_H */
