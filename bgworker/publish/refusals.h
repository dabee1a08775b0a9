/*
 * refusals.h
 *		The messages under way that Redis has refused.
 */
#ifndef OUTBOX_REFUSALS_H
#define OUTBOX_REFUSALS_H

#include "bgworker/publish/batch.h"
#include "bgworker/publish/verdict.h"

/* Messages of a batch that are refused for the same reason. */
typedef struct RefusedRows
{
	const struct RefusedRows *next; /* of another lane; NULL = no more */
	const Lane *lane;
	char		error[FOREIGN_TEXT_BYTES];
	int			n;
	int64		rows[FLEXIBLE_ARRAY_MEMBER];	/* of the run */
} RefusedRows;

extern void refusals_clear(void);
extern void refusals_add(const Batch *batch, Run *run, const Verdict *verdict);
extern bool refusals_include(const Lane *lane);
extern const RefusedRows *refusals_first(void);
extern int64 refusals_first_row(void);

#endif							/* OUTBOX_REFUSALS_H */
