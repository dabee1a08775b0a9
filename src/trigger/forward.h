/*
 * forward.h
 *		Rows of an existing outbox table as messages.
 */
#ifndef OUTBOX_FORWARD_H
#define OUTBOX_FORWARD_H

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/reltrigger.h"

#include "src/trigger/row_value.h"

/* What a trigger that calls outbox_forward() does with a row; NULL = not given. */
typedef struct ForwardPlan
{
	RowValue   *dest;
	RowValue   *body;
	RowValue   *id;
	RowValue   *headers;		/* an object */
	RowValue   *deliver_at;
	RowValue   *key;			/* whose messages stay in order */
	RowValue   *keep;			/* whether the row stays */
	RowValue   *operations;		/* an array of messages, instead of a body */
	int			nsingle;		/* single headers */
	char	  **single_names;
	RowValue  **singles;
} ForwardPlan;

/* forward.c */
extern Datum outbox_forward(PG_FUNCTION_ARGS);

/* forward_plan.c */
extern void *forward_plan_make(Relation table, const Trigger *trigger, List **others);

#endif							/* OUTBOX_FORWARD_H */
