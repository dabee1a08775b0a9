/*
 * append.c
 *		Inserts one row into one of our tables and its index.
 *
 * For record, log and window, whose tables have one index on one column and
 * no rule, default or constraint that the executor would have to mind. Triggers
 * do not fire: the ones on these tables are for rows that come by SQL.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/xact.h"

#include "src/append.h"

/*
 * Inserts a row; its column `key` goes into `index`.
 *
 * The caller holds RowExclusiveLock on the table. With UNIQUE_CHECK_YES a
 * second row of the same key is a 23505 that names the index; callers look
 * before, so that it never comes to that. There is no IndexInfo: a B-tree on
 * a column has no use for one.
 */
void
append_row(Relation table, Oid index, AttrNumber key,
		   IndexUniqueCheck unique, Datum *values, bool *isnull)
{
	HeapTuple	row = heap_form_tuple(RelationGetDescr(table), values, isnull);
	Relation	index_relation = index_open(index, RowExclusiveLock);

	heap_insert(table, row, GetCurrentCommandId(true), 0, NULL);
	index_insert(index_relation, &values[key - 1], &isnull[key - 1], &row->t_self,
				 table, unique, false, NULL);

	index_close(index_relation, NoLock);
	heap_freetuple(row);
}
