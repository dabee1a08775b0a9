/*
 * key_run.c
 *		The keys of a segment of records or of the history, in ascending order.
 *
 * Called by compaction_merge.c and filter_builder.c. Only for segments that are quiet:
 * their contents never change. A run is opened, read and closed within one
 * transaction; the next one continues after the last key.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "bgworker/ring/key_run.h"
#include "src/compat.h"
#include "src/ring/history.h"
#include "src/table/index.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

static bool find_start(KeyRun *run, const pg_uuid_t *after);
static void next_row(KeyRun *run);

/*
 * Opens a run at its first key greater than `after`, or at its first key if
 * that is NULL.
 */
void
key_run_open(KeyRun *run, RingKind kind, int segment, const pg_uuid_t *after)
{
	const SegmentRelations *relations = &relations_enter()->segments[kind][segment];
	ScanKeyData from;

	memset(run, 0, sizeof(*run));
	run->kind = kind;
	run->table = own_table_open(relations->table, kind == RING_RECORD ? OWN_RECORD : OWN_HISTORY, AccessShareLock);
	run->index = index_open_on(run->table, 1, AccessShareLock);
	run->row = table_slot_create(run->table, NULL);

	if (after && find_start(run, after))
	{
		ScanKeyInit(&from, 1, BTGreaterEqualStrategyNumber, F_UUID_GE, UUIDPGetDatum(&run->from));
		run->scan = compat_index_beginscan(run->table, run->index, SnapshotSelf, 1);
		index_rescan(run->scan, &from, 1, NULL, 0);
	}
	else
	{
		run->scan = compat_index_beginscan(run->table, run->index, SnapshotSelf, 0);
		index_rescan(run->scan, NULL, 0, NULL, 0);
	}

	do
	{
		key_run_advance(run);
	} while (after && !run->ended && key_compare(&run->key, after) <= 0);
}

/* Goes to the next key. */
void
key_run_advance(KeyRun *run)
{
	if (run->next >= run->nkeys)
	{
		CHECK_FOR_INTERRUPTS();
		next_row(run);
	}
	if (!run->ended)
		run->key = run->keys[run->next++];
}

/* Ends a run. */
void
key_run_close(KeyRun *run)
{
	index_endscan(run->scan);
	ExecDropSingleTupleTableSlot(run->row);
	index_close(run->index, NoLock);
	table_close(run->table, NoLock);
}

/*
 * Finds the row at which the scan begins: a row of the history may hold keys
 * before and after `after`.
 */
static bool
find_start(KeyRun *run, const pg_uuid_t *after)
{
	bool		isnull;

	run->from = *after;
	if (run->kind != RING_HISTORY)
		return true;
	if (!history_row_before(run->table, run->index, after, run->row))
		return false;
	run->from = *DatumGetUUIDP(slot_getattr(run->row, 1, &isnull));
	ExecClearTuple(run->row);
	return true;
}

/* Goes to the next row, which holds one key or, in the history, many. */
static void
next_row(KeyRun *run)
{
	bool		isnull;

	run->next = 0;
	run->ended = !index_getnext_slot(run->scan, ForwardScanDirection, run->row);
	if (run->ended)
		return;
	if (run->kind == RING_HISTORY)
		run->keys = history_row_keys(run->row, &run->nkeys);
	else
	{
		run->keys = DatumGetUUIDP(slot_getattr(run->row, 1, &isnull));
		run->nkeys = 1;
	}
}
