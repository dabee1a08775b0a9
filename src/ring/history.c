/*
 * history.c
 *		Records that were compacted: sorted keys, as many to a row as fill a page.
 *
 * A segment of the history is one run of keys in ascending order. Its rows follow
 * each other without overlap, and the index on their first keys finds the only
 * one that can hold a key. What the keys stood for (endpoint, message id,
 * transaction) is no longer known: they only tell a duplicate.
 *
 * Read by record_ring.c and restore.c, written by bgworker/ring/compaction_merge.c
 * alone. A segment is read only when it is whole, and from then on it never changes.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "src/compat.h"
#include "src/ring/history.h"
#include "src/table/index.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/table/row_write.h"

/* Columns of history_N. */
enum
{
	COL_FIRST_KEY = 1,
	COL_KEYS,
	NCOLUMNS = COL_KEYS
};

static bool row_contains(TupleTableSlot *row, const pg_uuid_t *key);

/*
 * Check whether a segment of the history holds a key.
 *
 * Takes AccessShareLock on table and index for the look, and no predicate
 * locks: it sees what is committed now at every isolation level.
 */
bool
history_contains(int segment, const pg_uuid_t *key)
{
	const SegmentRelations *relations = &relations_enter()->segments[RING_HISTORY][segment];
	Relation	table = own_table_open(relations->table, OWN_HISTORY, AccessShareLock);
	bool		found = false;

	if (RelationGetNumberOfBlocks(table) > 0)
	{
		Relation	index = history_index(table);
		TupleTableSlot *row = table_slot_create(table, NULL);

		found = history_row_before(table, index, key, row) && row_contains(row, key);
		ExecDropSingleTupleTableSlot(row);
		index_close(index, AccessShareLock);
	}
	table_close(table, AccessShareLock);
	return found;
}

/* Opens the index on the first keys; close with AccessShareLock. */
Relation
history_index(Relation table)
{
	return index_open_on(table, COL_FIRST_KEY, AccessShareLock);
}

/*
 * Writes a row of keys, ascending and greater than all before; n is at most
 * HISTORY_KEYS. The caller holds RowExclusiveLock on the table.
 */
void
history_append(Relation table, const pg_uuid_t *keys, int n)
{
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {0};
	Size		size = VARHDRSZ + n * sizeof(pg_uuid_t);
	bytea	   *compacted = palloc(size);

	SET_VARSIZE(compacted, size);
	memcpy(VARDATA(compacted), keys, n * sizeof(pg_uuid_t));
	values[COL_FIRST_KEY - 1] = UUIDPGetDatum(&keys[0]);
	values[COL_KEYS - 1] = PointerGetDatum(compacted);
	row_append(table, COL_FIRST_KEY, NCOLUMNS, values, isnull);
	pfree(compacted);
}

/* Returns the keys of a row, valid as long as the row is, and their number in *n. */
const pg_uuid_t *
history_row_keys(TupleTableSlot *row, int *n)
{
	bool		isnull;
	bytea	   *keys = DatumGetByteaPP(slot_getattr(row, COL_KEYS, &isnull));

	*n = VARSIZE_ANY_EXHDR(keys) / sizeof(pg_uuid_t);
	return (const pg_uuid_t *) VARDATA_ANY(keys);
}

/* Fetches the last row whose first key is not greater than the key. Returns false if there is none. */
bool
history_row_before(Relation table, Relation index, const pg_uuid_t *key, TupleTableSlot *row)
{
	ScanKeyData upto;
	IndexScanDesc scan;
	bool		found;

	ScanKeyInit(&upto, 1, BTLessEqualStrategyNumber, F_UUID_LE, UUIDPGetDatum(key));
	scan = compat_index_beginscan(table, index, SnapshotSelf, 1);
	index_rescan(scan, &upto, 1, NULL, 0);
	found = index_getnext_slot(scan, BackwardScanDirection, row);
	if (found)
		ExecMaterializeSlot(row);
	index_endscan(scan);
	return found;
}

/* Check whether a row has a key, by a binary search. */
static bool
row_contains(TupleTableSlot *row, const pg_uuid_t *key)
{
	int			n;
	const pg_uuid_t *keys = history_row_keys(row, &n);
	int			low = 0;

	while (low < n)
	{
		int			middle = (low + n) / 2;
		int			order = key_compare(&keys[middle], key);

		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			n = middle;
	}
	return false;
}
