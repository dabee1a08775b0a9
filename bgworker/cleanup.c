/*
 * cleanup.c
 *		Moves the slots of both rings through their states (see src/ring.c).
 *
 * Called by the dispatcher, by the clock or when outbox_cleanup() asks. Each
 * step is one short transaction that changes one row of outbox.ring, and only
 * when that is on disk do the sessions learn of it, so a crash between any two
 * lines leaves a state that the next round goes on from.
 *
 * It never waits for a lock: a slot that somebody holds (pg_dump, a forgotten
 * transaction) is passed over, and any other empty one becomes the next. Nobody
 * writes to a slot that is retired and readers skip it, so truncating it makes
 * no writer wait.
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
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/cleanup.h"
#include "bgworker/deferral.h"
#include "bgworker/transaction.h"
#include "src/compat.h"
#include "src/endpoint.h"
#include "src/relations.h"
#include "src/settings.h"
#include "src/shared.h"

/*
 * Shares of its time after which a slot is sealed. A record slot lives for one
 * share while it is written and six more until it expires; with eight slots
 * one is free for what is being emptied.
 */
#define RECORD_SHARES	6
#define LOG_SHARES		2

/* A count of more blocks than these is estimated from the first ones. */
#define COUNTED_BLOCKS	4096

static bool step(RingKind kind, int n, const Slot *slot, const Position *position, bool may_empty);
static bool rotate(RingKind kind, const Ring *ring, const Position *position);
static bool make_quiet(RingKind kind, int n);
static bool note_published(RingKind kind, int n, FullTransactionId tx, const Position *position);
static bool retire(RingKind kind, int n);
static bool empty(RingKind kind, int n);
static bool lock_to_empty(const SlotRelations *relations, RingKind kind);
static bool lock_with_toast(Oid relation);
static void truncate_slot(const SlotRelations *relations, RingKind kind);
static void truncate_table(Oid relation);
static void change_state(RingKind kind, int n, SlotState state);
static void tell_sessions(void);
static int64 time_to_live(RingKind kind);
static bool is_used(Oid table);
static int64 count_rows(Oid table);

/*
 * One round: every slot goes as far as it can. Nothing is emptied unless
 * may_empty: not while Redis is away, nor while a loss of it is made up. False
 * if the extension is being dropped.
 */
bool
cleanup_run(Position *position, bool may_empty)
{
	for (int kind = 0; kind < RING_KINDS; kind++)
	{
		Rings		rings;
		Ring	   *ring = &rings.ring[kind];

		if (!transaction_begin("cleaning up"))
			return false;
		rings_read(&rings);
		transaction_commit();

		if (!rotate((RingKind) kind, ring, position))
			return false;
		for (int n = 0; n < ring->nslots; n++)
		{
			/* Each step leads to the next state at once if that is due. */
			for (SlotState before = SLOT_CURRENT; before != ring->slots[n].state;)
			{
				before = ring->slots[n].state;
				if (!step((RingKind) kind, n, &ring->slots[n], position, may_empty) ||
					!transaction_begin("cleaning up"))
					return false;
				rings_read(&rings);
				transaction_commit();
			}
		}
	}
	return true;
}

/* Brings one slot into its next state if it may go there. */
static bool
step(RingKind kind, int n, const Slot *slot, const Position *position, bool may_empty)
{
	switch (slot->state)
	{
		case SLOT_EMPTY:
		case SLOT_CURRENT:
			return true;

		case SLOT_SEALED:
			return make_quiet(kind, n);

		case SLOT_QUIET:
			if (slot->published_at == 0)
				return note_published(kind, n, slot->tx, position);
			if (may_empty && GetCurrentTimestamp() - slot->published_at > time_to_live(kind))
				return retire(kind, n);
			return true;

		case SLOT_RETIRED:
			return may_empty ? empty(kind, n) : true;
	}
	return true;
}

/*
 * Makes an empty slot the current one when the current one has been written
 * for its share of the time. Needs no lock against writers, so it never starves.
 */
static bool
rotate(RingKind kind, const Ring *ring, const Position *position)
{
	int64		share = time_to_live(kind) / (kind == RING_LOG ? LOG_SHARES : RECORD_SHARES);
	int			next = 0;

	if (GetCurrentTimestamp() - ring->slots[ring->current].since < share)
		return true;
	while (next < ring->nslots && ring->slots[next].state != SLOT_EMPTY)
		next++;
	if (next == ring->nslots)
		return true;

	if (!transaction_begin("rotating a ring"))
		return false;
	if (is_used(relations_enter()->slots[kind][ring->current].table))
	{
		change_state(kind, ring->current, SLOT_SEALED);
		change_state(kind, next, SLOT_CURRENT);
		if (kind == RING_LOG)
		{
			Window		newest = position->opened;

			newest.published = Max(newest.published, position->published);
			newest.handed_over = Max(newest.handed_over, position->handed_over);
			window_append(&newest, next);
		}
	}
	transaction_commit();
	tell_sessions();
	return true;
}

/*
 * A ShareLock that is granted at once proves that no transaction that has
 * written to the slot is in progress; and none can begin to, for they all know
 * by now that it is not current.
 */
static bool
make_quiet(RingKind kind, int n)
{
	Oid			table;

	if (!transaction_begin("sealing a slot"))
		return false;
	table = relations_enter()->slots[kind][n].table;
	if (ConditionalLockRelationOid(table, ShareLock))
	{
		UnlockRelationOid(table, ShareLock);
		change_state(kind, n, SLOT_QUIET);
	}
	transaction_commit();
	tell_sessions();
	return true;
}

/* The time of the slot runs from when all that it holds was in Redis. */
static bool
note_published(RingKind kind, int n, FullTransactionId tx, const Position *position)
{
	if (!transaction_begin("noting what was published"))
		return false;
	if (position_has_published(position, tx))
		(void) transaction_execute("UPDATE outbox.ring SET published_at = clock_timestamp(), "
								   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
								   "WHERE ring = $1 AND slot = $2",
								   2, (Oid[]) {TEXTOID, INT4OID},
								   (Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(n)}, NULL);
	transaction_commit();
	tell_sessions();
	return true;
}

static bool
retire(RingKind kind, int n)
{
	if (!transaction_begin("retiring a slot"))
		return false;
	change_state(kind, n, SLOT_RETIRED);
	transaction_commit();
	tell_sessions();
	return true;
}

/* In a later transaction than retire(): by now all readers skip the slot. */
static bool
empty(RingKind kind, int n)
{
	const SlotRelations *relations;
	int64		records = 0;
	bool		locked;

	if (!transaction_begin("emptying a slot"))
		return false;
	relations = &relations_enter()->slots[kind][n];
	locked = lock_to_empty(relations, kind);
	if (locked)
	{
		SlotRelations copy = *relations;

		if (kind == RING_RECORD)
			records = count_rows(copy.table);
		else
			deferral_forget_slot(n);
		truncate_slot(&copy, kind);
		change_state(kind, n, SLOT_EMPTY);
	}
	transaction_commit_local();
	tell_sessions();
	pg_atomic_fetch_add_u64(&shared_mine()->records_removed, records);
	return true;
}

/* All that truncating will lock, but without waiting for any of it. */
static bool
lock_to_empty(const SlotRelations *relations, RingKind kind)
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
 * replication, who would truncate slots of theirs.
 */
static void
truncate_slot(const SlotRelations *relations, RingKind kind)
{
	truncate_table(relations->table);
	if (kind == RING_LOG)
		truncate_table(relations->window);
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
	(void) compat_reindex_relation(relation, REINDEX_REL_PROCESS_TOAST, &params);
}

static void
change_state(RingKind kind, int n, SlotState state)
{
	(void) transaction_execute("UPDATE outbox.ring SET state = $3, since = clock_timestamp(), "
							   "tx = pg_current_xact_id(), published_at = NULL, "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "WHERE ring = $1 AND slot = $2",
							   3, (Oid[]) {TEXTOID, INT4OID, TEXTOID},
							   (Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(n),
							   CStringGetTextDatum(slot_state_name(state))}, NULL);
}

static void
tell_sessions(void)
{
	if (!transaction_begin("telling of a slot's state"))
		return;
	rings_reload();
	transaction_commit();
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
is_used(Oid table)
{
	Relation	relation = table_open(table, AccessShareLock);
	bool		used = RelationGetNumberOfBlocks(relation) > 0;

	table_close(relation, AccessShareLock);
	return used;
}

/* Counts the records of a slot; a large one's by the density of its beginning. */
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
