/*
 * append.c
 *		Inserts one row into one of our tables and its indexes.
 *
 * For record, log, history and window, whose tables have one index on one column and
 * no rule, default or constraint that the executor would have to mind. Triggers
 * do not fire: the ones on these tables are for rows that come by SQL.
 *
 * Another index is there while REINDEX CONCURRENTLY or an administrator's CREATE
 * INDEX is at work, or was left by it. It must be filled like any other from the
 * moment on when it is ready: a row that it lacks is lost when names are
 * swapped. Then the executor does it.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/xact.h"
#include "executor/executor.h"

#include "src/append.h"
#include "src/compat.h"
#include "src/index.h"

static void fill_indexes(Relation table, HeapTuple row);

/*
 * Inserts a row; its column `key` is the one that the table's index is on.
 *
 * The caller holds RowExclusiveLock on the table to the end of its transaction:
 * whoever builds an index waits for it, so it does not matter if the list of
 * indexes is as old as that lock. Raises 55000 if the table has lost its index:
 * nobody would find the row.
 *
 * If the index is unique a second row of the same key is a 23505 that names it;
 * callers look before, so that it never comes to that. There is no IndexInfo: a
 * B-tree on a column has no use for one.
 */
void
append_row(Relation table, AttrNumber key, Datum *values, bool *isnull)
{
	HeapTuple	row = heap_form_tuple(RelationGetDescr(table), values, isnull);
	Relation	index = index_open_on(table, key, RowExclusiveLock);

	heap_insert(table, row, GetCurrentCommandId(true), 0, NULL);
	if (index_is_alone(table) && index->rd_index->indimmediate)
		index_insert(index, &values[key - 1], &isnull[key - 1], &row->t_self, table,
					 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, NULL);
	else
		fill_indexes(table, row);

	index_close(index, NoLock);
	heap_freetuple(row);
}

/* Inserts the entries of a row into all indexes that are ready, whatever they are on. */
static void
fill_indexes(Relation table, HeapTuple row)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *indexes = makeNode(ResultRelInfo);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsHeapTuple);

	InitResultRelInfo(indexes, table, 1, NULL, 0);
	ExecOpenIndices(indexes, false);
	ExecStoreHeapTuple(row, slot, false);
	(void) compat_insert_index_tuples(indexes, slot, estate);
	ExecCloseIndices(indexes);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
}
