/*
 * column_expression.h
 *		SQL expressions on the columns of a row, and their values.
 */
#ifndef OUTBOX_COLUMN_EXPRESSION_H
#define OUTBOX_COLUMN_EXPRESSION_H

#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "nodes/primnodes.h"
#include "utils/relcache.h"

typedef struct ColumnExpression
{
	Expr	   *expression;
	AttrNumber	column;			/* if it is nothing but a column; else 0 */
	Oid			type;			/* of a domain, its base type */
	List	   *depends;		/* OIDs of the relations of composite types,
								 * and of pg_type if it names types that are
								 * not built in */
	FmgrInfo	output;
} ColumnExpression;

extern Node *column_expression_parse(const char *sql);
extern ColumnExpression *column_expression_make(Relation table, const char *sql, Oid type);
extern void column_expression_plan(ColumnExpression *value);
extern Datum column_expression_evaluate(const ColumnExpression *value, TupleTableSlot *row, bool *isnull);
extern bool column_expression_is_generated(const ColumnExpression *value, Relation table);
extern text *column_expression_text(ColumnExpression *value, TupleTableSlot *row);
extern text *column_expression_print(ColumnExpression *value, Datum result);

#endif							/* OUTBOX_COLUMN_EXPRESSION_H */
