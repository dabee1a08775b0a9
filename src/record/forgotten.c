/*
 * forgotten.c
 *		Tombstones: ids that an administrator has made the outbox forget.
 *
 * Called by record_ring.c and record_forget.c, under the lock on the key, by
 * record_view.c, and by bgworker/ring/expiry.c. A compacted row is never changed, so
 * a record that is forgotten stays where it is, and a row of outbox.forgotten
 * says that it does not count:
 *
 *	 forget		writes the tombstone, if the id is known
 *	 claim		deletes it, in the same transaction that writes the new record
 *
 * So as long as there is a committed tombstone, every committed record of its
 * key is older, wherever it is and wherever it is copied to, and does not
 * count; without a tombstone all of them count. Rows of a transaction in
 * progress are visible to a dirty snapshot, as those of a claim are; if it is
 * rolled back, nothing has changed.
 *
 * A tombstone whose key is in no segment any more is deleted by cleanup. It
 * must never be deleted earlier, because the id would be known again.
 *
 * Nearly always the table is empty. A session that has seen it without a block
 * need not look again as long as shared memory counts no new tombstone. The count
 * is raised when the row is there, and read before the look: so a session that reads
 * the new count finds the block, and one that has read an old count looks again. A claim
 * reads it with the lock on the key, and a tombstone of that key is counted before
 * that lock is released. Where there is no shared memory, nothing is counted, and the table is
 * always read: a database beyond MAX_DATABASES may get its entry later.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/kill_point.h"
#include "src/record/forgotten.h"
#include "src/shared.h"
#include "src/table/index.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/table/row_write.h"

/* Columns of outbox.forgotten. */
enum
{
	COL_KEY = 1,
	COL_AT,
	NCOLUMNS = COL_AT
};

/* A round of cleanup checks at most this many. */
#define EXPIRED_AT_ONCE	1000

/* Does something with a tombstone that the dirty snapshot shows. */
typedef void (*TombstoneUse) (Relation table, TupleTableSlot *row, const SnapshotData *dirty, void *arg);

/* What forgotten_look() has found so far. */
typedef struct Verdict
{
	Forgotten	forgotten;
	TransactionId in_progress;
} Verdict;

/* What this session knows: the table was empty when so many tombstones had been written. */
static Oid	known_empty;
static uint64 known_at;

static uint64 count_written(void);
static bool is_known_empty(void);
static void note_empty(Relation table, uint64 written);
static void each_tombstone(const pg_uuid_t *key, LOCKMODE mode, TombstoneUse use, void *arg);
static void take_in_tombstone(Relation table, TupleTableSlot *row, const SnapshotData *dirty, void *arg);
static void delete_tombstone(Relation table, TupleTableSlot *row, const SnapshotData *dirty, void *arg);
static bool is_old(TupleTableSlot *row, TimestampTz before, pg_uuid_t *key);

/*
 * Check whether a key has been forgotten, without waiting. *in_progress is set
 * to the transaction to wait for, if one is in progress.
 */
Forgotten
forgotten_look(const pg_uuid_t *key, TransactionId *in_progress)
{
	Verdict		verdict = {FORGOTTEN_NOT};

	*in_progress = InvalidTransactionId;
	if (is_known_empty())
		return FORGOTTEN_NOT;
	each_tombstone(key, AccessShareLock, take_in_tombstone, &verdict);
	*in_progress = verdict.in_progress;
	return verdict.forgotten;
}

/* Check whether a key has been forgotten, unless a transaction that claims it again has committed. */
bool
forgotten_holds(const pg_uuid_t *key)
{
	TransactionId in_progress;
	Forgotten	forgotten = forgotten_look(key, &in_progress);

	return forgotten == FORGOTTEN_YES || forgotten == FORGOTTEN_NO_LONGER;
}

/* Writes a tombstone, which is effective from now on in this transaction. */
void
forgotten_add(const pg_uuid_t *key)
{
	Relation	table = own_table_open(relations_enter()->forgotten, OWN_FORGOTTEN, RowExclusiveLock);
	Datum		values[NCOLUMNS] = {UUIDPGetDatum(key), TimestampTzGetDatum(GetCurrentTimestamp())};
	bool		isnull[NCOLUMNS] = {0};

	row_append(table, COL_KEY, NCOLUMNS, values, isnull);
	KILL_POINT("tombstone_written");
	table_close(table, NoLock);
	if (shared_mine())
		pg_atomic_fetch_add_u64(&shared_mine()->tombstones, 1);

	/* Else the same statement could not delete it again. */
	CommandCounterIncrement();
}

/* Deletes the tombstones of a key, as part of the caller's claim. */
void
forgotten_clear(const pg_uuid_t *key)
{
	each_tombstone(key, RowExclusiveLock, delete_tombstone, NULL);
	KILL_POINT("tombstone_deleted");
}

/*
 * Deletes tombstones that are older than `age` microseconds and whose key is in
 * no segment any more. A claim that finds one being deleted waits for us.
 */
void
forgotten_expire(int64 age, bool (*is_kept) (const pg_uuid_t *key))
{
	Relation	table = own_table_open(relations_enter()->forgotten, OWN_FORGOTTEN, RowExclusiveLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	TableScanDesc scan = table_beginscan(table, SnapshotSelf, 0, NULL);
	TimestampTz before = GetCurrentTimestamp() - age;
	int			looked_at = 0;
	pg_uuid_t	key;

	while (looked_at < EXPIRED_AT_ONCE && table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		CHECK_FOR_INTERRUPTS();
		if (!is_old(row, before, &key))
			continue;
		looked_at++;
		if (!is_kept(&key))
			(void) row_delete(table, &row->tts_tid, false);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	table_close(table, NoLock);
}

/* Returns how many tombstones have been written in this database since the server was started. */
static uint64
count_written(void)
{
	uint64		written = pg_atomic_read_u64(&shared_mine()->tombstones);

	pg_memory_barrier();
	return written;
}

/* Check whether there can be no tombstone, because the table was empty and none has been written since. */
static bool
is_known_empty(void)
{
	return OidIsValid(known_empty) && known_empty == relations_enter()->forgotten && shared_mine() && known_at == count_written();
}

/*
 * Notes that the table has no block. Not on a standby, where rows arrive without
 * being counted; nor in a transaction that may have emptied the table, and may be
 * rolled back.
 */
static void
note_empty(Relation table, uint64 written)
{
	if (RecoveryInProgress() || CheckRelationLockedByMe(table, AccessExclusiveLock, false))
		return;
	known_empty = RelationGetRelid(table);
	known_at = written;
}

/* Calls a function for the tombstones of a key, committed or in progress. */
static void
each_tombstone(const pg_uuid_t *key, LOCKMODE mode, TombstoneUse use, void *arg)
{
	bool		is_counted = shared_mine() != NULL;
	uint64		written = is_counted ? count_written() : 0;
	Relation	table = own_table_open(relations_enter()->forgotten, OWN_FORGOTTEN, mode);
	Relation	index;
	TupleTableSlot *row;
	SnapshotData dirty;
	ScanKeyData is_key;
	IndexScanDesc scan;

	if (RelationGetNumberOfBlocks(table) == 0)
	{
		if (is_counted)
			note_empty(table, written);
	}
	else
	{
		InitDirtySnapshot(dirty);
		index = index_open_on(table, COL_KEY, AccessShareLock);
		row = table_slot_create(table, NULL);
		ScanKeyInit(&is_key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(key));
		scan = compat_index_beginscan(table, index, &dirty, 1);
		index_rescan(scan, &is_key, 1, NULL, 0);
		while (index_getnext_slot(scan, ForwardScanDirection, row))
			use(table, row, &dirty, arg);
		index_endscan(scan);
		ExecDropSingleTupleTableSlot(row);
		index_close(index, AccessShareLock);
	}
	table_close(table, mode == AccessShareLock ? AccessShareLock : NoLock);
}

/* A TombstoneUse: notes what a tombstone says. Of several, the one that is not being deleted counts. */
static void
take_in_tombstone(Relation table, TupleTableSlot *row, const SnapshotData *dirty, void *arg)
{
	Verdict    *verdict = arg;

	if (verdict->forgotten == FORGOTTEN_YES)
		return;
	if (TransactionIdIsValid(dirty->xmin))
		*verdict = (Verdict) {FORGOTTEN_PERHAPS, dirty->xmin};
	else if (TransactionIdIsValid(dirty->xmax))
		*verdict = (Verdict) {FORGOTTEN_NO_LONGER, dirty->xmax};
	else
		*verdict = (Verdict) {FORGOTTEN_YES, InvalidTransactionId};
}

/* A TombstoneUse. */
static void
delete_tombstone(Relation table, TupleTableSlot *row, const SnapshotData *dirty, void *arg)
{
	if (!TransactionIdIsValid(dirty->xmin))
		(void) row_delete(table, &row->tts_tid, true);
}

/* Check whether a tombstone was written before a time; sets *key to its key. */
static bool
is_old(TupleTableSlot *row, TimestampTz before, pg_uuid_t *key)
{
	bool		isnull;

	*key = *DatumGetUUIDP(slot_getattr(row, COL_KEY, &isnull));
	return DatumGetTimestampTz(slot_getattr(row, COL_AT, &isnull)) < before;
}
