/*
 * cleanup.c
 *		Moves the segments of all rings through their states (see src/ring/ring.c).
 *
 * Called by housekeeping.c, at intervals and for outbox_cleanup(). Each step is
 * one short transaction that changes one row of outbox.ring. Sessions are told
 * only when the change is on disk, so a crash between any two lines leaves a
 * state from which the next round continues.
 *
 * It never waits for a lock: a segment that is locked (by pg_dump or a
 * forgotten transaction) is skipped, and any other empty one becomes the next.
 * Nor does it end the dispatcher: a segment that raises an ERROR is left alone
 * for a while (quarantine.c), and the others go on.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/timestamp.h"

#include "bgworker/ring/cleanup.h"
#include "bgworker/ring/emptying.h"
#include "bgworker/ring/filter_builder.h"
#include "bgworker/ring/quarantine.h"
#include "bgworker/ring/ring_update.h"
#include "bgworker/transaction.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/forgotten.h"
#include "src/record/record_ring.h"
#include "src/ring/filter.h"
#include "src/settings.h"
#include "src/table/relations.h"

/*
 * A segment is sealed after this fraction of its time to live. A record segment
 * is written for one share of time and kept for six more until it expires; of
 * eight segments one is left for the one being emptied.
 */
#define RECORD_SHARES	6
#define LOG_SHARES		2

static bool attempt(RingKind kind, int n, const Ring *ring, Position *position, const CleanupLimits *limits);
static bool step(RingKind kind, int n, const Segment *segment, const Position *position,
				 const CleanupLimits *limits);
static int	next_segment(RingKind kind, const Ring *ring);
static bool rotate(RingKind kind, int next, const Ring *ring, const Position *position);
static bool make_quiet(RingKind kind, int n, FullTransactionId tx);
static bool note_published(RingKind kind, int n, FullTransactionId tx, const Position *position);
static bool retire(RingKind kind, int n, FullTransactionId tx, const Position *position);
static int64 share_of_time(RingKind kind);
static bool holds_compacted(const Ring *ring);
static bool is_full(RingKind kind, const Ring *ring);
static bool expire_forgotten(void);
static int64 time_to_live(RingKind kind);
static bool is_used(RingKind kind, int n);

/*
 * Check whether a round has something to do that cannot wait: the current
 * segment of records is full, or a compacted one could not be emptied yet.
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
 * Runs one round: brings every segment as far as it can go within the limits.
 * Returns false if the extension is being dropped. Sets *changed if any segment
 * changed its state.
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
	return !limits->may_expire || expire_forgotten();
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
		/*
		 * Rotation takes any empty segment, and nothing else is done with an
		 * empty one that could fail.
		 */
		if (i == segment || (n < 0 && ring->segments[i].state == SEGMENT_EMPTY))
			quarantine_release(kind, i);
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
			return make_quiet(kind, n, segment->tx);

		case SEGMENT_QUIET:
			if (segment->published_at == 0)
				return note_published(kind, n, segment->tx, position);
			if (limits->may_empty && limits->may_expire && segment->compacted_into < 0 &&
				GetCurrentTimestamp() - segment->published_at > time_to_live(kind))
				return retire(kind, n, segment->tx, position);
			return true;

		case SEGMENT_RETIRED:
			return limits->may_empty || segment->compacted_into >= 0 ? emptying_run(kind, n, segment) : true;
	}
	return true;
}

/* Returns the segment that would be current next; -1 if none is empty. */
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
 * Makes an empty segment current when the current one has been written for its
 * share of time, or is full. Needs no lock against writers, so it cannot
 * starve.
 */
static bool
rotate(RingKind kind, int next, const Ring *ring, const Position *position)
{
	const Segment *sealed = &ring->segments[ring->current];
	uint64		tag = 0;		/* 0 = nothing was changed */
	bool		is_old;

	is_old = GetCurrentTimestamp() - sealed->since >= share_of_time(kind);
	if (!transaction_begin("rotating a ring"))
		return false;
	if (is_old ? is_used(kind, ring->current) : is_full(kind, ring))
	{
		ring_update_state(kind, ring->current, SEGMENT_SEALED);
		ring_update_state(kind, next, SEGMENT_CURRENT);
		tag = U64FromFullTransactionId(GetTopFullTransactionId());

		/* It is there before anybody can write to the segment. */
		if (kind == RING_RECORD)
			filter_builder_begin_current(next, tag);
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
	if (tag != 0)
	{
		KILL_POINT_OF_WRITTEN_RING(kind, "rotation_committed");
		filter_keep(kind, ring->current, U64FromFullTransactionId(sealed->tx), tag);
		transaction_tell_rings();
	}
	return true;
}

/*
 * Makes a sealed segment quiet. A ShareLock that is granted at once proves that
 * no transaction that has written to the segment is in progress; and none can
 * begin to write, because all know by now that it is not current.
 */
static bool
make_quiet(RingKind kind, int n, FullTransactionId tx)
{
	Oid			table;
	uint64		tag = 0;		/* 0 = nothing was changed */

	if (!transaction_begin("sealing a segment"))
		return false;
	table = relations_enter()->segments[kind][n].table;
	if (ConditionalLockRelationOid(table, ShareLock))
	{
		UnlockRelationOid(table, ShareLock);
		ring_update_state(kind, n, SEGMENT_QUIET);
		tag = U64FromFullTransactionId(GetTopFullTransactionId());
		KILL_POINT_OF_WRITTEN_RING(kind, "quiet_written");
	}
	transaction_commit();
	if (tag != 0)
	{
		KILL_POINT_OF_WRITTEN_RING(kind, "quiet_committed");
		filter_keep(kind, n, U64FromFullTransactionId(tx), tag);
	}
	transaction_tell_rings();
	return true;
}

/* Notes that everything in the segment is in Redis. Its time to live begins then. */
static bool
note_published(RingKind kind, int n, FullTransactionId tx, const Position *position)
{
	bool		published;

	if (!transaction_begin("noting what was published"))
		return false;
	published = position_has_published(position, tx);
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
 * Retires a segment. Whether all of a log segment was published is checked once
 * more: a dispatcher that noted it may have died before it wrote its position.
 */
static bool
retire(RingKind kind, int n, FullTransactionId tx, const Position *position)
{
	if (!transaction_begin("retiring a segment"))
		return false;
	if (kind == RING_LOG && !position_has_published(position, tx))
	{
		transaction_commit();
		return true;
	}
	ring_update_state(kind, n, SEGMENT_RETIRED);
	KILL_POINT_OF_RING(kind, "retired_written");
	transaction_commit();
	KILL_POINT_OF_RING(kind, "retired_committed");
	transaction_tell_rings();
	return true;
}

/* Returns how long a segment is written, in microseconds. */
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
 * Check whether the current segment is full. Records go to small tables,
 * because their hashed keys touch pages at random. When segments become scarce,
 * because nothing is published or because a lock or an old snapshot keeps what
 * was compacted, each may become twice as large as the one before, so that the
 * remaining ones last.
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

/* Removes the tombstones of forgotten ids that are in no segment any more. */
static bool
expire_forgotten(void)
{
	if (!transaction_begin("forgetting tombstones"))
		return false;
	forgotten_expire(endpoint_longest_retention(), record_ring_holds);
	transaction_commit_async();
	return true;
}

/* Returns how long the contents of a ring are kept after they were published, in microseconds. */
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
