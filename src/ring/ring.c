/*
 * ring.c
 *		Tells which segments there are, in which state, and which one is written.
 *
 * Called by everything that reads or writes segments.
 *
 *	   empty --> current --> sealed --> quiet --> retired --> empty
 *	         (1)         (1)        (2)       (3)         (4)
 *	   empty --> filling -----------> quiet		(history)
 *
 * (1) Another segment becomes current; needs no lock. (2) A ShareLock that was
 * granted at once proved that no writer is left. (3) Its contents were
 * published and have expired, or are in the history now; after the commit of
 * this step readers skip it. (4) It is truncated, in a later transaction.
 *
 * The table outbox.ring is authoritative, and only the dispatcher changes it
 * (bgworker/ring/ring_update.c). Sessions read a copy in shared memory. The
 * copy is only loaded from committed rows, and a commit is visible to others
 * only after it is on disk, so the copy never shows a state that a crash could
 * undo. Each change increases the generation; a copy is replaced only by a
 * newer generation, or when the extension was created again. Each process keeps
 * what it read last, until a counter tells that the copy was replaced.
 *
 * A writer locks the segment that it takes for current and then checks that
 * again: if it still is, the lock keeps the segment from becoming quiet until
 * the writer's transaction ends.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/ring/ring.h"
#include "src/shared.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

#define NO_VERSION	PG_UINT64_MAX

/* Columns of outbox.ring. */
enum
{
	COL_RING = 1,
	COL_SEGMENT,
	COL_STATE,
	COL_GENERATION,
	COL_SINCE,
	COL_TX,
	COL_PUBLISHED_AT,
	COL_COMPACTED_INTO,
	COL_LEVEL,
	COL_KEYS
};

static const char *const ring_names[RING_KINDS] = {"log", "record", "history"};
static const char *const state_names[] = {"empty", "current", "sealed", "filling", "quiet", "retired"};
static const OwnTable own_tables[RING_KINDS] = {OWN_LOG, OWN_RECORD, OWN_HISTORY};

/* The rings as this process read them last. */
static Rings known;
static Oid	known_extension;	/* the extension that they belong to */
static uint64 known_version = NO_VERSION;

/* The rings of an extension that this transaction has created: shared memory must not have them yet. */
static Rings own;
static Oid	own_extension;
static FullTransactionId own_tx;

static bool is_uncommitted(const Relations *relations);
static const Rings *own_rings(const Relations *relations);
static bool take_shared(const Relations *relations);
static void load_rings(const Relations *relations, Rings *rings);
static void load_segment(TupleTableSlot *row, Rings *rings);
static void check_loaded(const Relations *relations, const Rings *rings);
static void share_rings(const Relations *relations, const Rings *rings);
static int	index_of(const char *name, const char *const *names, int n);

/*
 * Returns the current state of all rings: from shared memory, or from the table
 * if there is no valid copy. On a standby always from the table, because a copy
 * there would not be replaced. The result stays where it is, but the next call
 * of a function here may replace it by that of another generation.
 */
const Rings *
rings_now(void)
{
	const Relations *relations = relations_enter();
	Rings		rings;

	if (take_shared(relations))
		return &known;
	if (is_uncommitted(relations))
		return own_rings(relations);
	load_rings(relations, &rings);
	share_rings(relations, &rings);
	known = rings;
	known_version = NO_VERSION;
	return &known;
}

/*
 * Check whether shared memory has the rings, and so all else that belongs to the extension;
 * it gets them if it may. Not if this transaction has created the extension.
 */
bool
rings_are_shared(void)
{
	if (take_shared(relations_enter()))
		return true;
	(void) rings_now();
	return take_shared(relations_enter());
}

/* Copies the current state of all rings, for those that use it for longer. */
void
rings_read(Rings *rings)
{
	*rings = *rings_now();
}

/* Returns the current generation of the rings. */
int64
rings_generation(void)
{
	return rings_now()->generation;
}

/* Returns the generation that sessions know; for workers, because it needs no transaction. */
int64
rings_shared_generation(void)
{
	DatabaseShared *shared = shared_mine();
	int64		generation;

	LWLockAcquire(shared->lock, LW_SHARED);
	generation = shared->rings.generation;
	LWLockRelease(shared->lock);
	return generation;
}

/*
 * Reads the table again and makes it known to all sessions. Called by the
 * dispatcher after each change, in a transaction of its own.
 */
void
rings_reload(void)
{
	const Relations *relations = relations_enter();
	Rings		rings;

	load_rings(relations, &rings);
	share_rings(relations, &rings);
}

/*
 * Opens the table that new rows of a ring are written to, and sets *segment to its
 * number, unless that is NULL.
 *
 * Takes RowExclusiveLock, to the end of the transaction; close with NoLock.
 */
Relation
ring_open_current(RingKind kind, int *segment)
{
	for (;;)
	{
		int			current = rings_now()->ring[kind].current;
		Oid			table = relations_enter()->segments[kind][current].table;

		/*
		 * A later change cannot make the segment quiet before we end: nor can
		 * one that came after a look for which we had the lock already.
		 */
		bool		locked = relations_lock_to_end(table, RowExclusiveLock);

		if (!locked || rings_now()->ring[kind].current == current)
		{
			if (segment)
				*segment = current;
			return own_table_open(table, own_tables[kind], NoLock);
		}
		if (locked)
			relations_unlock_early(table, RowExclusiveLock);
	}
}

/*
 * Takes AccessShareLock on a segment's table to the end of the transaction, unless it was renamed
 * or that would wait, as for VACUUM FULL. Called before segments are maintained, which can be done later.
 */
bool
segment_try_lock(RingKind kind, int segment)
{
	Oid			table = relations_enter()->segments[kind][segment].table;

	return OidIsValid(table) && ConditionalLockRelationOid(table, AccessShareLock);
}

/*
 * The same for what is about to be written: takes the locks that sessions, and a window, take for
 * it. Raises an error if they could not open it, as if it was renamed: it must not become current.
 */
bool
segment_try_lock_to_write(RingKind kind, int segment)
{
	const SegmentRelations *relations = &relations_enter()->segments[kind][segment];

	if (!ConditionalLockRelationOid(relations->table, RowExclusiveLock) ||
		(kind == RING_LOG && !ConditionalLockRelationOid(relations->window, RowExclusiveLock)))
		return false;
	table_close(own_table_open(relations->table, own_tables[kind], NoLock), NoLock);
	return true;
}

/* Returns the size of a segment's table. */
BlockNumber
segment_blocks(RingKind kind, int segment)
{
	Relation	table = own_table_open(relations_enter()->segments[kind][segment].table, own_tables[kind], AccessShareLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(table);

	table_close(table, AccessShareLock);
	return blocks;
}

/* Returns how many keys a segment of records or of the history has, at most. */
int64
segment_count_keys(RingKind kind, int n, const Segment *segment)
{
	if (kind == RING_HISTORY)
		return segment->keys;
	return (int64) segment_blocks(kind, n) * BLCKSZ / RECORD_BYTES;
}

/* Returns the name of a ring in outbox.ring. */
const char *
ring_name(RingKind kind)
{
	return ring_names[kind];
}

/* Returns the name of a state in outbox.ring. */
const char *
segment_state_name(SegmentState state)
{
	return state_names[state];
}

/*
 * Check whether the extension may be one that this transaction has created, which holds the
 * lock that whoever creates a table has on it. If it is rolled back, all goes on as it was
 * before, with an earlier extension perhaps, to which what is in shared memory belongs.
 */
static bool
is_uncommitted(const Relations *relations)
{
	Relation	instance = table_open(relations->instance, NoLock);
	bool		is_locked = CheckRelationLockedByMe(instance, AccessExclusiveLock, false);

	table_close(instance, NoLock);
	return is_locked;
}

/*
 * Returns the rings for a transaction that holds that lock. They are read once, because
 * nobody else can change them: it may be one that restores a dump.
 */
static const Rings *
own_rings(const Relations *relations)
{
	FullTransactionId tx = GetTopFullTransactionIdIfAny();

	if (own_extension != relations->extension || !FullTransactionIdIsValid(tx) || !FullTransactionIdEquals(own_tx, tx))
	{
		own_extension = InvalidOid;
		load_rings(relations, &own);
		own_extension = relations->extension;
		own_tx = tx;
	}
	return &own;
}

/*
 * Takes over the copy in shared memory. Returns false if that is not of our
 * extension. A process that holds a lock which a change must wait for must see
 * all changes that did not wait: so there is a barrier.
 */
static bool
take_shared(const Relations *relations)
{
	DatabaseShared *shared = shared_mine();

	if (shared == NULL || RecoveryInProgress())
		return false;
	pg_memory_barrier();
	if (pg_atomic_read_u64(&shared->rings_version) != known_version)
	{
		LWLockAcquire(shared->lock, LW_SHARED);
		known = shared->rings;
		known_extension = shared->extension;
		known_version = pg_atomic_read_u64(&shared->rings_version);
		LWLockRelease(shared->lock);
	}
	return known_extension == relations->extension;
}

/* Replaces the copy in shared memory by a newer one. */
static void
share_rings(const Relations *relations, const Rings *rings)
{
	DatabaseShared *shared = shared_mine();

	if (shared == NULL || RecoveryInProgress())
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (shared->extension != relations->extension ||
		shared->rings.generation < rings->generation)
	{
		if (shared->extension != relations->extension)
		{
			pg_atomic_write_u64(&shared->last_id, 0);
			pg_atomic_write_u64(&shared->next_id, 1);
		}
		shared->rings = *rings;
		shared->extension = relations->extension;
		pg_atomic_fetch_add_u64(&shared->rings_version, 1);
	}
	LWLockRelease(shared->lock);
}

/* Reads the table with a new snapshot, so that all rows are of the same moment. */
static void
load_rings(const Relations *relations, Rings *rings)
{
	Relation	table = own_table_open(relations->ring, OWN_RING, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *row = table_slot_create(table, NULL);
	TableScanDesc scan = table_beginscan(table, snapshot, 0, NULL);

	memset(rings, 0, sizeof(*rings));
	for (int kind = 0; kind < RING_KINDS; kind++)
		rings->ring[kind].current = -1;
	while (table_scan_getnextslot(scan, ForwardScanDirection, row))
		load_segment(row, rings);

	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	UnregisterSnapshot(snapshot);
	table_close(table, AccessShareLock);
	check_loaded(relations, rings);
}

/* Takes one row of outbox.ring over. The table may have been written to by hand. */
static void
load_segment(TupleTableSlot *row, Rings *rings)
{
	Ring	   *ring;
	Segment    *segment;
	int			number;

	slot_getallattrs(row);
#define COLUMN(col) (row->tts_values[(col) - 1])
	ring = &rings->ring[index_of(TextDatumGetCString(COLUMN(COL_RING)), ring_names, RING_KINDS)];
	number = DatumGetInt32(COLUMN(COL_SEGMENT));
	if (number < 0 || number >= MAX_SEGMENTS)
		elog(ERROR, "invalid segment number in outbox.ring: %d", number);

	segment = &ring->segments[number];
	segment->state = (SegmentState) index_of(TextDatumGetCString(COLUMN(COL_STATE)),
											 state_names, lengthof(state_names));
	segment->since = DatumGetTimestampTz(COLUMN(COL_SINCE));
	segment->tx = DatumGetFullTransactionId(COLUMN(COL_TX));
	if (!row->tts_isnull[COL_PUBLISHED_AT - 1])
		segment->published_at = DatumGetTimestampTz(COLUMN(COL_PUBLISHED_AT));
	segment->compacted_into = row->tts_isnull[COL_COMPACTED_INTO - 1] ? -1 : DatumGetInt32(COLUMN(COL_COMPACTED_INTO));
	segment->level = DatumGetInt32(COLUMN(COL_LEVEL));
	segment->keys = DatumGetInt64(COLUMN(COL_KEYS));
	rings->generation = Max(rings->generation, DatumGetInt64(COLUMN(COL_GENERATION)));
#undef COLUMN

	ring->nsegments++;
	if (segment_is_live(segment))
		ring->live |= 1U << number;
	if (segment->state == SEGMENT_CURRENT)
		ring->current = number;
}

/* Checks that the rows describe all tables: they may have been written by hand. */
static void
check_loaded(const Relations *relations, const Rings *rings)
{
	for (int kind = 0; kind < RING_KINDS; kind++)
	{
		if (rings->ring[kind].nsegments != relations->nsegments[kind] ||
			(rings->ring[kind].current < 0 && kind != RING_HISTORY))
			elog(ERROR, "outbox.ring does not describe the %s tables", ring_names[kind]);
	}
}

/* Returns the place of a name in a list of names. */
static int
index_of(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	elog(ERROR, "unrecognized name in outbox.ring: \"%s\"", name);
}
