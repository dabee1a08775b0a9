/*
 * record_table_look.c
 *		Looks a record up in a custom record table.
 *
 * Called by record_table.c, for claims and without one, and for ids that are
 * forgotten. It looks through the unique index, with a dirty snapshot, and runs no
 * user-defined code. Unlike rows of ours, rows of such a table are updated, so a look
 * can miss one that moves meanwhile.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "src/compat.h"
#include "src/record/record_table_look.h"
#include "src/table/row_write.h"

static int	scan_index(Relation table, const RecordShape *shape, Datum id, RecordLook *look);
static void start_scan(IndexScanDesc scan, Relation index, Datum id);
static void take_in_version(RecordLook *look, const RecordShape *shape, TupleTableSlot *row, const SnapshotData *dirty);

/*
 * Looks up a record, repeatedly until the result is reliable. Between reading
 * the index and reading the row, the row may be updated; then its new version
 * is in the index by now, and the next time one more entry is found.
 */
RecordLook
record_table_look_in(Relation table, const RecordShape *shape, const char *msgid)
{
	Datum		id = record_table_look_id(shape, msgid);
	RecordLook	look;
	int			before;
	int			entries = 0;

	do
	{
		before = entries;
		look = (RecordLook) {.fate = RECORD_ABSENT};
		entries = scan_index(table, shape, id, &look);
	} while (look.fate != RECORD_COMMITTED && entries != before);
	return look;
}

/* Check whether a record is committed and not being changed. */
bool
record_table_look_is_at_rest(const RecordLook *look)
{
	return look->fate == RECORD_COMMITTED && !TransactionIdIsValid(look->xmax);
}

/* Returns an id as a value of the column's type. */
Datum
record_table_look_id(const RecordShape *shape, const char *msgid)
{
	if (shape->id_type == UUIDOID)
		return DirectFunctionCall1(uuid_in, CStringGetDatum(msgid));
	return CStringGetTextDatum(msgid);
}

/* Looks once; returns how many entries of the index were followed. */
static int
scan_index(Relation table, const RecordShape *shape, Datum id, RecordLook *look)
{
	Relation	index = index_open(shape->index, AccessShareLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	int			entries = 0;
	SnapshotData dirty;
	IndexScanDesc scan;

	InitDirtySnapshot(dirty);
	scan = compat_index_beginscan(table, index, &dirty, 1);
	start_scan(scan, index, id);
	while (look->fate != RECORD_COMMITTED && index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		entries++;
		if (index_fetch_heap(scan, row))
			take_in_version(look, shape, row, &dirty);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	return entries;
}

/* Starts a scan that compares as the index does: its operator class may be user-defined. */
static void
start_scan(IndexScanDesc scan, Relation index, Datum id)
{
	Oid			type = index->rd_opcintype[0];
	Oid			equal = get_opfamily_member(index->rd_opfamily[0], type, type, BTEqualStrategyNumber);
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0], get_opcode(equal), id);
	index_rescan(scan, &key, 1, NULL, 0);
}

/*
 * Takes in one version of a row. If its inserter is in progress another version
 * may still be committed: that of a row which is being updated.
 */
static void
take_in_version(RecordLook *look, const RecordShape *shape, TupleTableSlot *row, const SnapshotData *dirty)
{
	bool		isnull;

	look->fate = TransactionIdIsValid(dirty->xmin) ? RECORD_IN_PROGRESS : RECORD_COMMITTED;
	look->xmin = TransactionIdIsValid(dirty->xmin) ? dirty->xmin : row_inserter(row);
	look->xmax = dirty->xmax;
	look->in_table = true;
	look->dispatched = DatumGetBool(slot_getattr(row, shape->dispatched, &isnull)) && !isnull;
}
