/*
 * emptying.c
 *		Truncates segments that are no longer read.
 *
 * Called by cleanup_round.c for one segment at a time. It never waits for a lock
 * on a segment or its row in outbox.ring: what is locked is left to the next
 * round. A retired segment is not written to, and readers skip it, so truncating
 * it makes no writer wait.
 *
 * It must never truncate what a dump still needs: one that has taken its
 * snapshot but not yet its locks would not find what was compacted in any table.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/defer/tombstones.h"
#include "bgworker/process/transaction.h"
#include "bgworker/ring/compaction_merge.h"
#include "bgworker/ring/emptying.h"
#include "bgworker/ring/ring_update.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/owner_privileges.h"
#include "src/shared.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/* A dump has its locks within this time, or waits for one; in microseconds. */
#define DUMP_GRACE		(5 * 60 * USECS_PER_SEC)

static bool forget_tombstones(int segment, bool *forgotten);
static bool has_reader(Oid table);
static void require_names(const SegmentRelations *relations, RingKind kind);
static bool is_needed_by_dump(Oid table, const Segment *segment);
static bool session_waits_with_snapshot_before(FullTransactionId tx);
static bool lock_to_empty(const SegmentRelations *relations, RingKind kind);
static bool lock_with_toast(Oid relation);
static void truncate_segment(const SegmentRelations *relations, RingKind kind);
static void truncate_table(Oid relation);
static int64 count_rows(Oid table);

/*
 * Truncates a retired segment, in a later transaction than the one that retired
 * it: by now all readers skip it. If it is locked, the next round tries again.
 * Returns false if the extension is being dropped. Raises 42P01 if it was renamed.
 */
bool
emptying_run(RingKind kind, int n, const Segment *segment)
{
	SegmentRelations relations;
	int64		records = 0;
	bool		forgotten = true;
	bool		locked;

	if (kind == RING_LOG && !forget_tombstones(n, &forgotten))
		return false;
	if (!forgotten)
		return true;
	if (!transaction_begin("emptying a segment"))
		return false;
	relations = relations_enter()->segments[kind][n];
	require_names(&relations, kind);
	locked = segment_try_lock(kind, n) && !is_needed_by_dump(relations.table, segment) && lock_to_empty(&relations, kind) &&
		ring_update_try_lock(kind, n);
	if (locked)
	{
		if (kind != RING_LOG && segment->compacted_into < 0)
			records = kind == RING_HISTORY ? segment->keys :
				segment_quarantine_has_failed(kind, n) ? 0 : count_rows(relations.table);
		if (kind == RING_HISTORY)
			merge_forget_endpoints(n);
		KILL_POINT_OF_RING(kind, "locked_to_empty");
		truncate_segment(&relations, kind);
		KILL_POINT_OF_RING(kind, "truncated");
		ring_update_state(kind, n, SEGMENT_EMPTY);
		KILL_POINT_OF_RING(kind, "empty_written");
	}
	transaction_commit_local();
	if (locked)
		KILL_POINT_OF_RING(kind, "empty_committed");
	transaction_tell_rings();
	pg_atomic_fetch_add_u64(&shared_mine()->records_removed, records);
	return true;
}

/*
 * Deletes the tombstones of a log segment, before the segment is locked,
 * because there may be many; sets *forgotten to false if a session may read the segment, and
 * need them. If none does, it does no harm if it cannot be locked afterwards.
 */
static bool
forget_tombstones(int segment, bool *forgotten)
{
	const SegmentRelations *relations;

	if (!transaction_begin("forgetting deferred messages"))
		return false;
	relations = &relations_enter()->segments[RING_LOG][segment];
	require_names(relations, RING_LOG);
	*forgotten = !has_reader(relations->table);
	if (*forgotten)
		tombstones_forget_segment(segment);
	KILL_POINT("tombstones_deleted");
	transaction_commit();
	KILL_POINT("tombstones_delete_committed");
	return true;
}

/*
 * Check whether a session that began to read a segment before it was retired may still do so,
 * as outbox_replay() does. Whoever locks it from now on finds it retired. No lock is taken
 * to find out: standbys would keep it as long as tombstones are deleted.
 */
static bool
has_reader(Oid table)
{
	LOCKTAG		tag;
	int			readers;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, table);
	(void) GetLockConflicts(&tag, AccessExclusiveLock, &readers);
	return readers > 0;
}

/* Raises 42P01 if a table of the segment was renamed: that is a problem, and no lock that will be given up. */
static void
require_names(const SegmentRelations *relations, RingKind kind)
{
	if (!OidIsValid(relations->table) || (kind == RING_LOG && !OidIsValid(relations->window)))
		relations_raise_missing(NULL);
}

/*
 * Check whether a dump may still need a segment that was compacted. A dump that
 * has taken its snapshot but not yet its locks would find the keys neither here
 * nor in the history. A process that has held an older snapshot for long
 * without waiting for a lock is no such dump, and must not hold up the ring.
 */
static bool
is_needed_by_dump(Oid table, const Segment *segment)
{
	Relation	relation;
	TransactionId horizon;

	if (segment->compacted_into < 0)
		return false;
	relation = table_open(table, AccessShareLock);
	horizon = GetOldestNonRemovableTransactionId(relation);
	table_close(relation, AccessShareLock);
	if (TransactionIdPrecedes(XidFromFullTransactionId(segment->tx), horizon))
		return false;

	/* A clock that was ahead may have been set back since. */
	return llabs(GetCurrentTimestamp() - segment->since) < DUMP_GRACE || session_waits_with_snapshot_before(segment->tx);
}

/*
 * Check whether a session waits for a lock that has had its snapshot since before that
 * transaction. The owner of our tables need not be told what others do; nor may a
 * search_path that its code has set be used with more privileges than it has.
 */
static bool
session_waits_with_snapshot_before(FullTransactionId tx)
{
	OwnerPrivileges before;
	bool		waits;

	owner_privileges_take(&before, ROLE_PG_READ_ALL_STATS);
	waits = transaction_execute("SELECT FROM pg_stat_activity "
								"WHERE datname = current_database() AND wait_event_type = 'Lock' "
								"AND age(backend_xmin) >= age($1::xid)",
								1, (Oid[]) {XID8OID}, (Datum[]) {FullTransactionIdGetDatum(tx)}, NULL) > 0;
	owner_privileges_return(&before);
	return waits;
}

/* Takes all locks that truncating needs, without waiting for any of them. */
static bool
lock_to_empty(const SegmentRelations *relations, RingKind kind)
{
	return lock_with_toast(relations->table) &&
		(kind != RING_LOG || lock_with_toast(relations->window)) &&
		(kind != RING_HISTORY || ConditionalLockRelationOid(relations_enter()->compacted, RowExclusiveLock));
}

/* Locks a table and its TOAST table, for which TRUNCATE would wait. */
static bool
lock_with_toast(Oid relation)
{
	Relation	table;
	Oid			toast;

	if (!ConditionalLockRelationOid(relation, AccessExclusiveLock))
		return false;
	table = table_open(relation, NoLock);
	toast = table->rd_rel->reltoastrelid;
	table_close(table, NoLock);
	return !OidIsValid(toast) || ConditionalLockRelationOid(toast, AccessExclusiveLock);
}

/*
 * Does what TRUNCATE does, except that it is not replicated logically:
 * subscribers would truncate their own segments.
 */
static void
truncate_segment(const SegmentRelations *relations, RingKind kind)
{
	truncate_table(relations->table);
	if (kind == RING_LOG)
	{
		KILL_POINT("windows_not_yet_truncated");
		truncate_table(relations->window);
	}
}

/*
 * Gives a table and its indexes new files; the old ones are removed when the
 * transaction has committed.
 */
static void
truncate_table(Oid relation)
{
	ReindexParams params = {0};
	Relation	table = table_open(relation, NoLock);
	Oid			toast = table->rd_rel->reltoastrelid;

	compat_new_files(table);
	table_close(table, NoLock);
	if (OidIsValid(toast))
	{
		table = table_open(toast, NoLock);
		compat_new_files(table);
		table_close(table, NoLock);
	}
	KILL_POINT("indexes_not_yet_truncated");
	(void) compat_reindex_relation(relation, REINDEX_REL_PROCESS_TOAST, &params);
}

/* Counts the records of a segment of records; estimates a large one by the density of its beginning. */
static int64
count_rows(Oid table)
{
	Relation	relation = own_table_open(table, OWN_RECORD, NoLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(relation);
	TupleTableSlot *row = table_slot_create(relation, NULL);
	TableScanDesc scan = table_beginscan(relation, GetActiveSnapshot(), 0, NULL);
	int64		rows = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, row) &&
		   ItemPointerGetBlockNumber(&row->tts_tid) < COUNTED_BLOCKS)
		rows++;
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	table_close(relation, NoLock);
	return blocks > COUNTED_BLOCKS ? rows * blocks / COUNTED_BLOCKS : rows;
}
