/*
 * row.c
 *		Inserts one row into one of our tables and its indexes, and deletes one.
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
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "src/compat.h"
#include "src/table/row.h"
#include "src/table/index.h"
#include "src/table/relations.h"

static void check_table(Relation table);
static HeapTuple form_row(TupleDesc columns, int nours, const Datum *values, const bool *isnull);
static void fill_indexes(Relation table, HeapTuple row);

/*
 * Inserts a row of so many columns; its column `key` is the one that the table's
 * index is on.
 *
 * The caller holds RowExclusiveLock on the table to the end of its transaction:
 * whoever builds an index waits for it, so it does not matter if the list of
 * indexes is as old as that lock. Raises 55000 if the table has lost its index, for
 * nobody would find the row, or has become one that a crash empties.
 *
 * If the index is unique a second row of the same key is a 23505 that names it;
 * callers look before, so that it never comes to that. There is no IndexInfo: a
 * B-tree on a column has no use for one.
 */
void
row_append(Relation table, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull)
{
	HeapTuple	row;
	Relation	index;

	check_table(table);
	row = form_row(RelationGetDescr(table), ncolumns, values, isnull);
	index = index_open_on(table, key, RowExclusiveLock);
	heap_insert(table, row, GetCurrentCommandId(true), 0, NULL);
	if (index_is_alone(table) && index->rd_index->indimmediate)
		index_insert(index, (Datum *) &values[key - 1], (bool *) &isnull[key - 1], &row->t_self, table,
					 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, NULL);
	else
		fill_indexes(table, row);

	index_close(index, NoLock);
	heap_freetuple(row);
}

/* heap_insert() knows no other access method, and a crash empties an unlogged table. */
static void
check_table(Relation table)
{
	if (table->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" is unlogged", OUTBOX_SCHEMA, RelationGetRelationName(table)),
				 errdetail("A crash would empty it."),
				 errhint("ALTER TABLE %s.%s SET LOGGED;", OUTBOX_SCHEMA, RelationGetRelationName(table))));
	if (table->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" is no heap", OUTBOX_SCHEMA, RelationGetRelationName(table)),
				 errhint("ALTER TABLE %s.%s SET ACCESS METHOD heap;", OUTBOX_SCHEMA, RelationGetRelationName(table))));
}

/* Columns that an administrator has added get the value that ADD COLUMN gave to older rows. */
static HeapTuple
form_row(TupleDesc columns, int nours, const Datum *values, const bool *isnull)
{
	Datum	   *all_values;
	bool	   *all_isnull;

	if (columns->natts == nours)
		return heap_form_tuple(columns, (Datum *) values, (bool *) isnull);
	all_values = palloc(columns->natts * sizeof(Datum));
	all_isnull = palloc(columns->natts * sizeof(bool));
	memcpy(all_values, values, nours * sizeof(Datum));
	memcpy(all_isnull, isnull, nours * sizeof(bool));
	for (int i = nours; i < columns->natts; i++)
		all_values[i] = getmissingattr(columns, i + 1, &all_isnull[i]);
	return heap_form_tuple(columns, all_values, all_isnull);
}

/*
 * Deletes a row as part of the caller's transaction, whatever its snapshot is;
 * false if somebody else has, or with `wait` false is about to. For what was
 * forgotten (record_ring.c, forgotten.c): nothing else of ours is ever deleted so.
 */
bool
row_delete(Relation table, ItemPointer tid, bool wait)
{
	TM_FailureData failure;

	return table_tuple_delete(table, tid, GetCurrentCommandId(true), SnapshotAny, InvalidSnapshot,
							  wait, &failure, false) == TM_Ok;
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
