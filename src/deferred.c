/*
 * deferred.c
 *		Reads outbox.deferred.
 *
 * For sessions (outbox_wait(), the views) and for the dispatcher. Only the dispatcher writes the table: see bgworker/deferral.c.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/deferred.h"
#include "src/relations.h"

/* Columns of outbox.deferred. */
enum
{
	COL_ID = 1,
	COL_KEY,
	COL_MESSAGE_ID,
	COL_DEST,
	COL_CAUSE,
	COL_AT,
	COL_HEADERS,
	COL_BODY,
	COL_LOG_SLOT,
	COL_STATE,
	COL_RETURNED_TX,
	COL_ATTEMPTS,
	COL_NEXT_AT,
	COL_LAST_ERROR
};

static const char *const state_names[] = {"scheduled", "waiting", "dead", "returned", "discarded"};

static DeferredState state_of(const char *name);

/* Reads all rows that are committed now. Locks are released at once. */
void
deferred_scan(DeferredReader reader, void *arg)
{
	Relation	table = table_open(relations_enter()->deferred, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(table, NULL);
	TableScanDesc scan = table_beginscan(table, SnapshotSelf, 0, NULL);
	Deferred	row;

	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_scan_getnextslot(scan, ForwardScanDirection, slot))
			break;
		deferred_read_row(slot, &row);
	} while (reader(&row, arg));

	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(table, AccessShareLock);
}

/*
 * Whether there is a row for a message, how often it was tried, and which row
 * of the log counts if it was returned; InvalidFullTransactionId if it was not.
 */
bool
deferred_find(int64 id, FullTransactionId *returned_tx, int *attempts)
{
	const Relations *relations = relations_enter();
	Relation	table = table_open(relations->deferred, AccessShareLock);
	Relation	index = index_open(relations->deferred_index, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(table, NULL);
	IndexScanDesc scan = compat_index_beginscan(table, index, SnapshotSelf, 1);
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	index_rescan(scan, &key, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
	{
		bool		isnull;
		Datum		tx = slot_getattr(slot, COL_RETURNED_TX, &isnull);

		*returned_tx = isnull ? InvalidFullTransactionId : DatumGetFullTransactionId(tx);
		*attempts = DatumGetInt32(slot_getattr(slot, COL_ATTEMPTS, &isnull));
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
	return found;
}

/* How a state is called in outbox.deferred. */
const char *
deferred_state_name(DeferredState state)
{
	return state_names[state];
}

/* Reads one row; what is stored out of line is not fetched. */
void
deferred_read_row(TupleTableSlot *slot, Deferred *row)
{
	slot_getallattrs(slot);
	memset(row, 0, sizeof(*row));
#define COLUMN(col) (slot->tts_values[(col) - 1])
#define ISNULL(col) (slot->tts_isnull[(col) - 1])
	row->message.id = DatumGetInt64(COLUMN(COL_ID));
	row->message.at = DatumGetTimestampTz(COLUMN(COL_AT));
	row->message.has_key = !ISNULL(COL_KEY);
	if (row->message.has_key)
		row->message.key = *DatumGetUUIDP(COLUMN(COL_KEY));
	row->message.message_id = DatumGetTextPP(COLUMN(COL_MESSAGE_ID));
	row->message.dest = DatumGetTextPP(COLUMN(COL_DEST));
	row->message.cause = ISNULL(COL_CAUSE) ? NULL : DatumGetTextPP(COLUMN(COL_CAUSE));
	row->message.headers = ISNULL(COL_HEADERS) ? NULL : DatumGetJsonbP(COLUMN(COL_HEADERS));
	row->message.body = (bytea *) DatumGetPointer(COLUMN(COL_BODY));
	row->state = state_of(TextDatumGetCString(COLUMN(COL_STATE)));
	if (!ISNULL(COL_RETURNED_TX))
		row->returned_tx = DatumGetFullTransactionId(COLUMN(COL_RETURNED_TX));
	row->attempts = DatumGetInt32(COLUMN(COL_ATTEMPTS));
	row->next_at = DatumGetTimestampTz(COLUMN(COL_NEXT_AT));
	row->last_error = ISNULL(COL_LAST_ERROR) ? NULL : DatumGetTextPP(COLUMN(COL_LAST_ERROR));
#undef COLUMN
#undef ISNULL
}

static DeferredState
state_of(const char *name)
{
	for (int i = 0; i < lengthof(state_names); i++)
	{
		if (strcmp(state_names[i], name) == 0)
			return (DeferredState) i;
	}
	elog(ERROR, "outbox.deferred holds an unknown state: \"%s\"", name);
}
