/*
 * forward.h
 *		Rows of an existing outbox table as messages.
 */
#ifndef OUTBOX_FORWARD_H
#define OUTBOX_FORWARD_H

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/reltrigger.h"

#include "src/trigger/column_expression.h"

/* What a trigger that calls outbox_forward() does with a row; NULL = not given. */
typedef struct ForwardPlan
{
	ColumnExpression *dest;
	ColumnExpression *body;
	ColumnExpression *id;
	ColumnExpression *headers;	/* an object */
	ColumnExpression *deliver_at;
	ColumnExpression *key;		/* whose messages stay in order */
	ColumnExpression *keep;		/* whether the row stays */
	ColumnExpression *operations;	/* an array of messages, instead of a body */
	int			nsingle;		/* single headers */
	char	  **single_names;
	ColumnExpression **singles;
} ForwardPlan;

/* forward_plan.c */
extern void *forward_plan_make(Relation table, const Trigger *trigger, List **others);

#endif							/* OUTBOX_FORWARD_H */
