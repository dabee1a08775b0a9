/*
 * row_write.c
 *		Inserts one row into one of our tables and its indexes, and deletes one.
 *
 * Called by log_row.c, window_row.c, history.c, record_ring.c and forgotten.c.
 * For the tables of records, log, history and windows, which have one index on
 * one column and no rule, default or constraint that would need the executor.
 * Triggers do not fire: those on these tables are for rows written by SQL.
 *
 * There is another index during REINDEX CONCURRENTLY or a CREATE INDEX by an
 * administrator, or after it. As soon as it is ready it must be filled like any
 * other: a row that it lacks is lost when names are swapped. In that case the
 * executor inserts the entries. So it does if the only index has columns beside its key.
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
#include "src/owner_privileges.h"
#include "src/table/index.h"
#include "src/table/relations.h"
#include "src/table/row_write.h"

static void check_table(Relation table);
static HeapTuple form_row(TupleDesc columns, int nours, const Datum *values, const bool *isnull);
static void cut_nulls(HeapTuple row, int ncolumns, const bool *isnull);
static bool has_null(HeapTupleHeader header, int ncolumns);
static void fill_indexes(Relation table, HeapTuple row);

/*
 * Inserts a row of `ncolumns` columns; the table's index is on column `key`.
 *
 * The caller holds RowExclusiveLock on the table until the end of its
 * transaction: a command that builds an index waits for it, so the list of
 * indexes may be as old as that lock. Raises 55000 if the table has lost its
 * index, because the row would not be found, or would be emptied by a crash.
 *
 * If the index is unique, a second row with the same key raises 23505; callers
 * check before, so that does not happen.
 */
void
row_append(Relation table, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull)
{
	Relation	index = index_open_to_write(table, key);

	row_append_with(table, index, key, ncolumns, values, isnull);
	index_close(index, NoLock);
}

/*
 * The same for a caller that has the index open, with RowExclusiveLock to the
 * end of its transaction. No IndexInfo is passed: a B-tree on a column does not
 * use it.
 */
void
row_append_with(Relation table, Relation index, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull)
{
	HeapTuple	row;

	check_table(table);
	row = form_row(RelationGetDescr(table), ncolumns, values, isnull);
	heap_insert(table, row, GetCurrentCommandId(true), 0, NULL);
	if (index_is_alone(table) && index->rd_index->indimmediate && index->rd_index->indnatts == 1)
		index_insert(index, (Datum *) &values[key - 1], (bool *) &isnull[key - 1], &row->t_self, table,
					 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, NULL);
	else
		fill_indexes(table, row);
	heap_freetuple(row);
}

/* Checks that the table is a heap: heap_insert() works with no other access method. */
static void
check_table(Relation table)
{
	if (table->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" is not a heap", OUTBOX_SCHEMA, RelationGetRelationName(table)),
				 errhint("Execute ALTER TABLE %s.%s SET ACCESS METHOD heap.", OUTBOX_SCHEMA, RelationGetRelationName(table))));
}

/* Forms the tuple. Columns that an administrator has added get the value that ADD COLUMN gave to older rows. */
static HeapTuple
form_row(TupleDesc columns, int nours, const Datum *values, const bool *isnull)
{
	HeapTuple	row;

	if (columns->natts > nours)
	{
		Datum	   *all_values = palloc(columns->natts * sizeof(Datum));
		bool	   *all_isnull = palloc(columns->natts * sizeof(bool));

		memcpy(all_values, values, nours * sizeof(Datum));
		memcpy(all_isnull, isnull, nours * sizeof(bool));
		for (int i = nours; i < columns->natts; i++)
			all_values[i] = getmissingattr(columns, i + 1, &all_isnull[i]);
		values = all_values;
		isnull = all_isnull;
	}
	row = heap_form_tuple(columns, (Datum *) values, (bool *) isnull);
	if (HeapTupleHasNulls(row) && !(columns->constr && columns->constr->missing))
		cut_nulls(row, columns->natts, isnull);
	return row;
}

/*
 * Cuts the NULLs off the end of a tuple, and its null bitmap if no other column
 * is NULL. A tuple may have fewer columns than its table, as those have that are
 * older than an ADD COLUMN; they are NULL unless the table knows a value for such
 * rows. So a column that is NULL takes no space at the end, where it would else
 * make the bitmap exceed the room that headers have for it.
 */
static void
cut_nulls(HeapTuple row, int ncolumns, const bool *isnull)
{
	HeapTupleHeader header = row->t_data;
	int			offset = SizeofHeapTupleHeader;
	int			cut;

	while (isnull[ncolumns - 1])
		ncolumns--;
	HeapTupleHeaderSetNatts(header, ncolumns);
	if (has_null(header, ncolumns))
		offset += BITMAPLEN(ncolumns);
	else
		header->t_infomask &= ~HEAP_HASNULL;

	cut = header->t_hoff - MAXALIGN(offset);
	if (cut == 0)
		return;
	memmove((char *) header + header->t_hoff - cut, (char *) header + header->t_hoff, row->t_len - header->t_hoff);
	header->t_hoff -= cut;
	row->t_len -= cut;
}

/* Check whether one of the first columns of a tuple that has a null bitmap is NULL. A bit says that one is not. */
static bool
has_null(HeapTupleHeader header, int ncolumns)
{
	for (int i = 0; i < ncolumns; i += BITS_PER_BYTE)
	{
		int			all = ncolumns - i < BITS_PER_BYTE ? (1 << (ncolumns - i)) - 1 : 0xff;

		if ((header->t_bits[i / BITS_PER_BYTE] & all) != all)
			return true;
	}
	return false;
}

/*
 * Deletes a row as part of the caller's transaction, regardless of its
 * snapshot. Returns false if another transaction has deleted it or, with `wait`
 * false, is about to. Only for records and tombstones of forgotten ids
 * (record_ring.c, forgotten.c).
 */
bool
row_delete(Relation table, ItemPointer tid, bool wait)
{
	TM_FailureData failure;

	return table_tuple_delete(table, tid, GetCurrentCommandId(true), SnapshotAny, InvalidSnapshot,
							  wait, &failure, false) == TM_Ok;
}

/*
 * Returns the transaction that wrote a version of a row; FrozenTransactionId if its number
 * means nothing any more. (The system column xmin has the number even then.)
 */
TransactionId
row_inserter(TupleTableSlot *row)
{
	bool		copied;
	HeapTuple	version = ExecFetchSlotHeapTuple(row, false, &copied);
	TransactionId xid = HeapTupleHeaderGetXmin(version->t_data);

	if (copied)
		heap_freetuple(version);
	return xid;
}

/*
 * Inserts the entries of a row into all indexes that are ready, whatever they are on.
 * Functions in an index are called with the privileges of the table's owner: our callers
 * do not know the table. So they must not find what a caller has put into its search_path.
 * Some are called when the indexes are opened, and what they call is looked up then.
 */
static void
fill_indexes(Relation table, HeapTuple row)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *indexes = makeNode(ResultRelInfo);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsHeapTuple);
	OwnerPrivileges before;

	owner_privileges_take(&before, table->rd_rel->relowner);
	InitResultRelInfo(indexes, table, 1, NULL, 0);
	ExecOpenIndices(indexes, false);
	ExecStoreHeapTuple(row, slot, false);
	(void) compat_insert_index_tuples(indexes, slot, estate);
	owner_privileges_return(&before);
	ExecCloseIndices(indexes);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
}
