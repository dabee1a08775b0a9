/*
 * row_value.h
 *		The value of an SQL expression on the columns of a row.
 */
#ifndef OUTBOX_ROW_VALUE_H
#define OUTBOX_ROW_VALUE_H

#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "nodes/primnodes.h"
#include "utils/relcache.h"

typedef struct RowValue
{
	Expr	   *expression;
	AttrNumber	column;			/* if it is nothing but a column; else 0 */
	Oid			type;			/* of a domain, its base type */
	List	   *depends;		/* OIDs of the relations of composite types,
								 * and of pg_type if it names types that are
								 * not built in */
	FmgrInfo	output;
} RowValue;

extern Node *row_value_parse(const char *sql);
extern RowValue *row_value_make(Relation table, const char *sql, Oid type);
extern Datum row_value_get(const RowValue *value, TupleTableSlot *row, bool *isnull);
extern bool row_value_is_generated(const RowValue *value, Relation table);
extern text *row_value_text(RowValue *value, TupleTableSlot *row);

#endif							/* OUTBOX_ROW_VALUE_H */
