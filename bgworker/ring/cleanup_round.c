/*
 * cleanup_round.c
 *		Runs rounds in which each segment is brought into its next state.
 *
 * Called by housekeeping.c, at intervals and for outbox_cleanup(). The states
 * are described in src/ring/ring.c:
 *
 *	 empty --> current --> sealed	rotation.c
 *	 sealed --> quiet				here, as is noting that all is published
 *	 quiet --> retired				expiry.c, or compaction_merge.c if it was compacted
 *	 retired --> empty				emptying.c
 *
 * Each step is one short transaction that changes one row of outbox.ring.
 * Sessions are told only when the change is on disk, so a crash between any two
 * lines leaves a state from which the next round continues.
 *
 * It must never wait for a lock on a segment that is or was written by sessions,
 * nor for a row of outbox.ring: what is locked, by pg_dump, a forgotten
 * transaction or the apply worker of a subscription, is left to the next round,
 * and any other empty segment becomes the next one. Nor must it end the
 * dispatcher: a segment that raises an ERROR is skipped for a while
 * (segment_quarantine.c), and the others are worked on.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lmgr.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/cleanup_round.h"
#include "bgworker/ring/emptying.h"
#include "bgworker/ring/expiry.h"
#include "bgworker/ring/ring_update.h"
#include "bgworker/ring/rotation.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/kill_point.h"
#include "src/ring/filter.h"
#include "src/table/relations.h"

static bool attempt(RingKind kind, int n, const Ring *ring, Position *position, const CleanupLimits *limits);
static bool advance(RingKind kind, int n, const Segment *segment, const Position *position,
					const CleanupLimits *limits);
static bool make_quiet(RingKind kind, int n, const Segment *segment);
static bool has_writer(RingKind kind, int n);
static bool note_published(RingKind kind, int n, FullTransactionId tx, const Position *position);
static bool delete_forgotten(void);
static bool holds_compacted(const Ring *ring);

/*
 * Check whether a round has something to do that cannot wait: the current
 * segment of records is full, or a compacted one could not be emptied yet.
 */
bool
cleanup_round_is_due(void)
{
	Rings		rings;
	const Ring *records = &rings.ring[RING_RECORD];
	volatile bool due = false;

	if (!transaction_begin("measuring a segment"))
		return false;
	rings_read(&rings);
	PG_TRY();
	{
		due = (!segment_quarantine_holds(RING_RECORD, records->current) && rotation_measure_current(RING_RECORD, records)) ||
			holds_compacted(records) || holds_compacted(&rings.ring[RING_HISTORY]);
		transaction_commit();
	}
	PG_CATCH();
	{
		segment_quarantine_catch(RING_RECORD, records->current, "could not measure outbox.%s_%d: %s");
	}
	PG_END_TRY();
	return due;
}

/*
 * Runs one round: brings every segment as far as it can go within the limits.
 * Returns false if the extension is being dropped. Sets *changed if any segment
 * changed its state.
 */
bool
cleanup_round_run(Position *position, const CleanupLimits *limits, bool *changed)
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
		segment_quarantine_review((RingKind) kind, ring, limits->may_expire);

		if (!attempt((RingKind) kind, -1, ring, position, limits))
			return false;
		for (int n = 0; n < ring->nsegments; n++)
		{
			/* A step may make the next one due at once. */
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
	return !limits->may_expire || delete_forgotten();
}

/*
 * Brings a segment into its next state, or makes the next segment current if n
 * is negative. Returns false if the extension is being dropped, but not if the
 * step failed.
 */
static bool
attempt(RingKind kind, int n, const Ring *ring, Position *position, const CleanupLimits *limits)
{
	volatile bool is_there = true;
	volatile bool changed = false;
	int64		generation = rings_shared_generation();
	int			segment = n < 0 ? rotation_next(kind, ring) : n;

	if (segment < 0 || segment_quarantine_holds(kind, segment) ||
		(n < 0 && (kind == RING_HISTORY || segment_quarantine_holds(kind, ring->current))))
		return true;
	segment_quarantine_touch(kind, segment);
	PG_TRY();
	{
		is_there = n < 0 ? rotation_run(kind, segment, ring, position) : advance(kind, n, &ring->segments[n], position, limits);
		changed = rings_shared_generation() != generation;
	}
	PG_CATCH();
	{
		segment_quarantine_catch_touched("could not clean up outbox.%s_%d: %s");
	}
	PG_END_TRY();
	for (int i = 0; changed && i < ring->nsegments; i++)
	{
		/*
		 * Rotation takes any empty segment, and nothing else is done with an
		 * empty one that could fail.
		 */
		if (i == segment || (n < 0 && ring->segments[i].state == SEGMENT_EMPTY))
			segment_quarantine_release(kind, i);
	}
	return is_there;
}

/* Brings one segment into its next state if it may go there. */
static bool
advance(RingKind kind, int n, const Segment *segment, const Position *position, const CleanupLimits *limits)
{
	switch (segment->state)
	{
		case SEGMENT_EMPTY:
		case SEGMENT_CURRENT:
		case SEGMENT_FILLING:
			return true;

		case SEGMENT_SEALED:
			return make_quiet(kind, n, segment);

		case SEGMENT_QUIET:
			if (segment->published_at == 0)
				return note_published(kind, n, segment->tx, position);
			if (limits->may_empty && limits->may_expire && expiry_is_due(kind, n, segment))
				return expiry_retire(kind, n, segment->tx, position);
			return true;

		case SEGMENT_RETIRED:
			return limits->may_empty || segment->compacted_into >= 0 ? emptying_run(kind, n, segment) : true;
	}
	return true;
}

/*
 * Makes a sealed segment quiet. If it has outgrown its filter, filter_builder.c
 * makes one for all that it has.
 */
static bool
make_quiet(RingKind kind, int n, const Segment *segment)
{
	bool		keeps_filter = false;
	uint64		tag = 0;		/* 0 = nothing was changed */

	if (!transaction_begin("sealing a segment"))
		return false;
	if (!has_writer(kind, n) && ring_update_try_lock(kind, n))
	{
		keeps_filter = kind == RING_RECORD &&
			filter_is_large_enough(kind, n, segment_count_keys(kind, n, segment));
		ring_update_state(kind, n, SEGMENT_QUIET);
		tag = U64FromFullTransactionId(GetTopFullTransactionId());
		KILL_POINT_OF_WRITTEN_RING(kind, "quiet_written");
	}
	transaction_commit();
	if (tag != 0)
	{
		KILL_POINT_OF_WRITTEN_RING(kind, "quiet_committed");
		if (keeps_filter)
			filter_keep(kind, n, U64FromFullTransactionId(segment->tx), tag);
	}
	transaction_tell_rings();
	return true;
}

/*
 * Check whether a transaction in progress may have written to a sealed segment. A
 * ShareLock that is granted at once proves that none has; and none can begin to
 * write, because all know by now that the segment is not current.
 */
static bool
has_writer(RingKind kind, int n)
{
	Oid			table = relations_enter()->segments[kind][n].table;

	if (!ConditionalLockRelationOid(table, ShareLock))
		return true;
	UnlockRelationOid(table, ShareLock);
	return false;
}

/* Notes that everything in the segment is in Redis. Its time to live begins then. */
static bool
note_published(RingKind kind, int n, FullTransactionId tx, const Position *position)
{
	bool		published;

	if (!transaction_begin("noting what was published"))
		return false;
	published = position_has_published(position, tx) && ring_update_try_lock(kind, n);
	if (published)
	{
		ring_update_published(kind, n);
		KILL_POINT_OF_WRITTEN_RING(kind, "published_written");
	}
	transaction_commit();
	if (published)
		KILL_POINT_OF_WRITTEN_RING(kind, "published_committed");
	transaction_tell_rings();
	return true;
}

/*
 * Removes tombstones that are of no use any more, for which segments are looked into. Which
 * one has failed is not known here, but the ERROR names its file; the current one
 * stands for it. Returns false if the extension is being dropped.
 */
static bool
delete_forgotten(void)
{
	volatile bool is_there = true;
	Rings		rings;
	int			current;

	if (!transaction_begin("cleaning up"))
		return false;
	rings_read(&rings);
	transaction_commit();
	current = rings.ring[RING_RECORD].current;
	if (segment_quarantine_holds(RING_RECORD, current))
		return true;
	PG_TRY();
	{
		is_there = expiry_delete_forgotten();
	}
	PG_CATCH();
	{
		segment_quarantine_catch(RING_RECORD, current, "could not find out, in outbox.%s_%d and others, which forgotten ids have expired: %s");
	}
	PG_END_TRY();
	return is_there;
}

/* Check whether a segment that was compacted is not empty yet. */
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
