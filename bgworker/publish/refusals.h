/*
 * refusals.h
 *		The messages under way that Redis has refused.
 */
#ifndef OUTBOX_REFUSALS_H
#define OUTBOX_REFUSALS_H

#include "bgworker/connection/batch_verdict.h"
#include "bgworker/publish/batch.h"

/* Messages of a batch that are refused for the same reason. */
typedef struct RefusedRows
{
	struct RefusedRows *next;	/* of another lane; NULL = no more */
	Lane	   *lane;
	char		error[FOREIGN_TEXT_BYTES];
	int64		first_left;		/* first row behind those that Redis has and
								 * those that are refused before it */
	bool		is_unclear;		/* the batch was refused as a whole: these are
								 * all of its rows (forbidden.c) */
	int			n;
	int64		rows[FLEXIBLE_ARRAY_MEMBER];	/* of the run */
} RefusedRows;

extern void refusals_clear(void);
extern void refusals_add(const Batch *batch, Run *run, const Verdict *verdict);
extern bool refusals_include(const Lane *lane);
extern RefusedRows *refusals_first(void);
extern int64 refusals_first_left(void);

#endif							/* OUTBOX_REFUSALS_H */
