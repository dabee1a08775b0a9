/*
 * cleanup.c
 *		Moves the segments of all rings through their states (see src/ring/ring.c).
 *
 * Called by the dispatcher, by the clock or when outbox_cleanup() asks. Each
 * step is one short transaction that changes one row of outbox.ring, and only
 * when that is on disk do the sessions learn of it, so a crash between any two
 * lines leaves a state that the next round goes on from.
 *
 * It never waits for a lock: a segment that somebody holds (pg_dump, a forgotten
 * transaction) is passed over, and any other empty one becomes the next. Nobody
 * writes to a segment that is retired and readers skip it, so truncating it makes
 * no writer wait. Nor does it end the dispatcher: a segment at which an ERROR comes
 * up is left alone for a while (quarantine.c), and the others go on.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/defer/deferral.h"
#include "bgworker/ring/cleanup.h"
#include "bgworker/ring/quarantine.h"
#include "bgworker/transaction.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/forgotten.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/relations.h"

/*
 * Shares of its time after which a segment is sealed. A record segment lives for one
 * share while it is written and six more until it expires; with eight segments
 * one is free for what is being emptied.
 */
#define RECORD_SHARES	6
#define LOG_SHARES		2

/* A dump has its locks within this time, or waits for one: microseconds. */
#define DUMP_GRACE		(5 * 60 * USECS_PER_SEC)

static bool attempt(RingKind kind, int n, const Ring *ring, Position *position, const CleanupLimits *limits);
static bool step(RingKind kind, int n, const Segment *segment, const Position *position, const CleanupLimits *limits);
static bool rotate(RingKind kind, int next, const Ring *ring, const Position *position);
static int	next_segment(RingKind kind, const Ring *ring);
static bool make_quiet(RingKind kind, int n);
static bool note_published(RingKind kind, int n, FullTransactionId tx, const Position *position);
static bool retire(RingKind kind, int n);
static int64 share_of_time(RingKind kind);
static bool holds_compacted(const Ring *ring);
static bool is_full(RingKind kind, const Ring *ring);
static bool empty(RingKind kind, int n, const Segment *segment);
static bool forget_tombstones(int segment);
static void forget_compacted(int segment);
static bool expire_forgotten(void);
static bool is_needed_by_dump(Oid table, const Segment *segment);
static bool somebody_waits_with_snapshot_before(FullTransactionId tx);
static bool lock_to_empty(const SegmentRelations *relations, RingKind kind);
static bool lock_with_toast(Oid relation);
static void truncate_segment(const SegmentRelations *relations, RingKind kind);
static void truncate_table(Oid relation);
static void change_state(RingKind kind, int n, SegmentState state);
static int64 time_to_live(RingKind kind);
static bool is_used(RingKind kind, int n);
static int64 count_rows(Oid table);

/*
 * Whether a round has something to do that cannot wait: records have filled
 * their segment, or one that was compacted could not be emptied yet.
 */
bool
cleanup_is_due(void)
{
	Rings		rings;
	bool		due;

	if (!transaction_begin("measuring a segment"))
		return false;
	rings_read(&rings);
	due = is_full(RING_RECORD, &rings.ring[RING_RECORD]) ||
		holds_compacted(&rings.ring[RING_RECORD]) || holds_compacted(&rings.ring[RING_HISTORY]);
	transaction_commit();
	return due;
}

/*
 * One round: every segment goes as far as it can, within the limits. False if the
 * extension is being dropped. Sets *changed if any segment changed its state.
 */
bool
cleanup_run(Position *position, const CleanupLimits *limits, bool *changed)
{
	int64		generation = rings_shared_generation();

	for (int kind = 0; kind < RING_KINDS; kind++)
	{
		Rings		rings;
		Ring	   *ring = &rings.ring[kind];

		if (!transaction_begin("cleaning up"))
			return false;
		rings_read(&rings);
		transaction_commit();
		quarantine_review(&rings);

		if (!attempt((RingKind) kind, -1, ring, position, limits))
			return false;
		for (int n = 0; n < ring->nsegments; n++)
		{
			/* Each step leads to the next state at once if that is due. */
			for (SegmentState before = SEGMENT_CURRENT; before != ring->segments[n].state;)
			{
				before = ring->segments[n].state;
				if (!attempt((RingKind) kind, n, ring, position, limits) ||
					!transaction_begin("cleaning up"))
					return false;
				rings_read(&rings);
				transaction_commit();
			}
		}
	}
	*changed = rings_shared_generation() != generation;
	return !limits->may_expire || expire_forgotten();
}

/*
 * Brings a segment into its next state, or makes the next one current if n is
 * negative. False if the extension is being dropped; a failure is none of that.
 */
static bool
attempt(RingKind kind, int n, const Ring *ring, Position *position, const CleanupLimits *limits)
{
	volatile bool is_there = true;
	volatile bool changed = false;
	int64		generation = rings_shared_generation();
	int			segment = n < 0 ? next_segment(kind, ring) : n;

	if (segment < 0 || (n < 0 && kind == RING_HISTORY) || quarantine_holds(kind, segment))
		return true;
	PG_TRY();
	{
		is_there = n < 0 ? rotate(kind, segment, ring, position) : step(kind, n, &ring->segments[n], position, limits);
		changed = rings_shared_generation() != generation;
	}
	PG_CATCH();
	{
		quarantine_catch(kind, segment, "cleaning up");
	}
	PG_END_TRY();
	for (int i = 0; changed && i < ring->nsegments; i++)
	{
		/* What rotates is any empty segment: none of them has anything else that could fail. */
		if (i == segment || (n < 0 && ring->segments[i].state == SEGMENT_EMPTY))
			quarantine_passed(kind, i);
	}
	return is_there;
}

/* Brings one segment into its next state if it may go there. */
static bool
step(RingKind kind, int n, const Segment *segment, const Position *position, const CleanupLimits *limits)
{
	switch (segment->state)
	{
		case SEGMENT_EMPTY:
		case SEGMENT_CURRENT:
		case SEGMENT_FILLING:
			return true;

		case SEGMENT_SEALED:
			return make_quiet(kind, n);

		case SEGMENT_QUIET:
			if (segment->published_at == 0)
				return note_published(kind, n, segment->tx, position);
			if (limits->may_empty && limits->may_expire && segment->compacted_into < 0 &&
				GetCurrentTimestamp() - segment->published_at > time_to_live(kind))
				return retire(kind, n);
			return true;

		case SEGMENT_RETIRED:
			return limits->may_empty || segment->compacted_into >= 0 ? empty(kind, n, segment) : true;
	}
	return true;
}

/* The segment that would be current next, -1 if none is empty. */
static int
next_segment(RingKind kind, const Ring *ring)
{
	for (int n = 0; n < ring->nsegments; n++)
	{
		if (ring->segments[n].state == SEGMENT_EMPTY && !quarantine_holds(kind, n))
			return n;
	}
	return -1;
}

/*
 * Makes an empty segment the current one when the current one has been written
 * for its share of the time, or is full. Needs no lock against writers, so it
 * never starves.
 */
static bool
rotate(RingKind kind, int next, const Ring *ring, const Position *position)
{
	bool		is_old;
	bool		rotated = false;

	is_old = GetCurrentTimestamp() - ring->segments[ring->current].since >= share_of_time(kind);
	if (!transaction_begin("rotating a ring"))
		return false;
	if (is_old ? is_used(kind, ring->current) : is_full(kind, ring))
	{
		rotated = true;
		change_state(kind, ring->current, SEGMENT_SEALED);
		change_state(kind, next, SEGMENT_CURRENT);
		if (kind == RING_LOG)
		{
			Window		newest = position->opened;

			newest.published = Max(newest.published, position->published);
			newest.propagated = Max(newest.propagated, position->propagated);
			window_append(&newest, next);
		}
		KILL_POINT_OF_WRITTEN_RING(kind, "rotation_written");
	}
	transaction_commit();
	if (rotated)
	{
		KILL_POINT_OF_WRITTEN_RING(kind, "rotation_committed");
		transaction_tell_rings();
	}
	return true;
}

/*
 * A ShareLock that is granted at once proves that no transaction that has
 * written to the segment is in progress; and none can begin to, for they all know
 * by now that it is not current.
 */
static bool
make_quiet(RingKind kind, int n)
{
	Oid			table;
	bool		quiet;

	if (!transaction_begin("sealing a segment"))
		return false;
	table = relations_enter()->segments[kind][n].table;
	quiet = ConditionalLockRelationOid(table, ShareLock);
	if (quiet)
	{
		UnlockRelationOid(table, ShareLock);
		change_state(kind, n, SEGMENT_QUIET);
		KILL_POINT_OF_WRITTEN_RING(kind, "quiet_written");
	}
	transaction_commit();
	if (quiet)
		KILL_POINT_OF_WRITTEN_RING(kind, "quiet_committed");
	transaction_tell_rings();
	return true;
}

/* The time of the segment runs from when all that it holds was in Redis. */
static bool
note_published(RingKind kind, int n, FullTransactionId tx, const Position *position)
{
	bool		published;

	if (!transaction_begin("noting what was published"))
		return false;
	published = position_has_published(position, tx);
	if (published)
	{
		(void) transaction_execute("UPDATE outbox.ring SET published_at = clock_timestamp(), "
								   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
								   "WHERE ring = $1 AND segment = $2",
								   2, (Oid[]) {TEXTOID, INT4OID},
								   (Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(n)}, NULL);
		KILL_POINT_OF_WRITTEN_RING(kind, "published_written");
	}
	transaction_commit();
	if (published)
		KILL_POINT_OF_WRITTEN_RING(kind, "published_committed");
	transaction_tell_rings();
	return true;
}

static bool
retire(RingKind kind, int n)
{
	if (!transaction_begin("retiring a segment"))
		return false;
	change_state(kind, n, SEGMENT_RETIRED);
	KILL_POINT_OF_RING(kind, "retired_written");
	transaction_commit();
	KILL_POINT_OF_RING(kind, "retired_committed");
	transaction_tell_rings();
	return true;
}

/* How long a segment is written, in microseconds. */
static int64
share_of_time(RingKind kind)
{
	return time_to_live(kind) / (kind == RING_LOG ? LOG_SHARES : RECORD_SHARES);
}

static bool
holds_compacted(const Ring *ring)
{
	for (int n = 0; n < ring->nsegments; n++)
	{
		if (ring->segments[n].state == SEGMENT_RETIRED && ring->segments[n].compacted_into >= 0)
			return true;
	}
	return false;
}

/*
 * Records go to small tables: their hashed keys touch pages at random. When
 * segments become scarce, for nothing is published or a lock or an old snapshot keeps
 * what was compacted, each is made twice as large as the one before: so the rest lasts.
 */
static bool
is_full(RingKind kind, const Ring *ring)
{
	int64		limit = outbox_record_segment_size / (BLCKSZ / 1024);
	int			used = 0;

	if (kind != RING_RECORD)
		return false;
	for (int n = 0; n < ring->nsegments; n++)
		used += ring->segments[n].state != SEGMENT_EMPTY;
	if (used > ring->nsegments / 2)
		limit <<= used - ring->nsegments / 2;
	return segment_blocks(kind, ring->current) >= limit;
}

/*
 * In a later transaction than the one that retired it: by now all readers skip
 * the segment.
 */
static bool
empty(RingKind kind, int n, const Segment *segment)
{
	const SegmentRelations *relations;
	int64		records = 0;
	bool		locked;

	if (kind == RING_LOG && !forget_tombstones(n))
		return false;
	if (!transaction_begin("emptying a segment"))
		return false;
	relations = &relations_enter()->segments[kind][n];
	locked = !is_needed_by_dump(relations->table, segment) && lock_to_empty(relations, kind);
	if (locked)
	{
		SegmentRelations copy = *relations;

		if (kind != RING_LOG && segment->compacted_into < 0)
			records = kind == RING_HISTORY ? segment->keys :
				quarantine_has_failed(kind, n) ? 0 : count_rows(copy.table);
		if (kind == RING_HISTORY)
			forget_compacted(n);
		KILL_POINT_OF_RING(kind, "locked_to_empty");
		truncate_segment(&copy, kind);
		KILL_POINT_OF_RING(kind, "truncated");
		change_state(kind, n, SEGMENT_EMPTY);
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
 * Before the segment is locked, for there may be many. Nobody reads it any more, so
 * they are missed by nobody if it cannot be locked now.
 */
static bool
forget_tombstones(int segment)
{
	if (!transaction_begin("forgetting deferred messages"))
		return false;
	deferral_forget_segment(segment);
	KILL_POINT("tombstones_deleted");
	transaction_commit();
	KILL_POINT("tombstones_delete_committed");
	return true;
}

static void
forget_compacted(int segment)
{
	(void) transaction_execute("DELETE FROM outbox.compacted WHERE segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(segment)}, NULL);
}

/* Tombstones of ids that were forgotten and are in no segment any more. */
static bool
expire_forgotten(void)
{
	if (!transaction_begin("forgetting tombstones"))
		return false;
	forgotten_expire(endpoint_longest_retention());
	transaction_commit_async();
	return true;
}

/*
 * A dump that has taken its snapshot but not yet its locks would find the keys
 * of a segment that was compacted neither here nor in the history. Whoever has held an
 * older snapshot for long without waiting for a lock is no such dump, and must
 * not hold up the ring.
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
	return GetCurrentTimestamp() - segment->since < DUMP_GRACE || somebody_waits_with_snapshot_before(segment->tx);
}

static bool
somebody_waits_with_snapshot_before(FullTransactionId tx)
{
	return transaction_execute("SELECT FROM pg_stat_activity "
							   "WHERE datname = current_database() AND wait_event_type = 'Lock' "
							   "AND age(backend_xmin) >= age($1::xid)",
							   1, (Oid[]) {XID8OID}, (Datum[]) {FullTransactionIdGetDatum(tx)}, NULL) > 0;
}

/* All that truncating will lock, but without waiting for any of it. */
static bool
lock_to_empty(const SegmentRelations *relations, RingKind kind)
{
	return lock_with_toast(relations->table) &&
		(kind != RING_LOG || lock_with_toast(relations->window));
}

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
 * Does what the TRUNCATE command does but for telling subscribers of logical
 * replication, who would truncate segments of theirs.
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

static void
change_state(RingKind kind, int n, SegmentState state)
{
	(void) transaction_execute("UPDATE outbox.ring SET state = $3, since = clock_timestamp(), "
							   "tx = pg_current_xact_id(), published_at = NULL, compacted_into = NULL, "
							   "level = CASE WHEN $3 = 'empty' THEN 0 ELSE level END, "
							   "keys = CASE WHEN $3 = 'empty' THEN 0 ELSE keys END, "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "WHERE ring = $1 AND segment = $2",
							   3, (Oid[]) {TEXTOID, INT4OID, TEXTOID},
							   (Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(n),
							   CStringGetTextDatum(segment_state_name(state))}, NULL);
}

/* How long what a ring holds outlives its dispatch, in microseconds. */
static int64
time_to_live(RingKind kind)
{
	int64		ttl;

	if (kind == RING_LOG)
		return outbox_replay_window * USECS_PER_SEC;
	if (!transaction_begin("reading the retention"))
		return PG_INT64_MAX;
	ttl = endpoint_longest_retention();
	transaction_commit();
	return ttl;
}

static bool
is_used(RingKind kind, int n)
{
	return segment_blocks(kind, n) > 0;
}

/* Counts the records of a segment; a large one's by the density of its beginning. */
static int64
count_rows(Oid table)
{
	Relation	relation = table_open(table, NoLock);
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
