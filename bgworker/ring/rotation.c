/*
 * rotation.c
 *		Makes another segment of a ring current.
 *
 * Called by cleanup_round.c. Rotation needs no lock against writers, so it cannot
 * starve: transactions that know of no rotation yet still write to the segment
 * that was current. It must never choose a segment that is not empty.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/expiry.h"
#include "bgworker/ring/filter_builder.h"
#include "bgworker/ring/ring_update.h"
#include "bgworker/ring/rotation.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/kill_point.h"
#include "src/log/window_row.h"
#include "src/ring/filter.h"
#include "src/settings.h"

/*
 * A segment is sealed after this fraction of its time to live. A record segment
 * is written for one share of time and kept for six more until it expires; of
 * eight segments one is left for the one being emptied.
 */
#define RECORD_SHARES	6
#define LOG_SHARES		2

/* A record segment of this share of its size is worth another one after a checkpoint. */
#define CHECKPOINT_SHARE	8

static XLogRecPtr redo_of_current;	/* of the last checkpoint that the current
									 * record segment need not leave; 0 = not
									 * known yet */

static bool note_checkpoint(BlockNumber blocks, int64 limit);
static bool may_be_next(RingKind kind, const Ring *ring, int n);
static int	lock_next(RingKind kind, const Ring *ring, int next);
static int64 share_of_time(RingKind kind);

/*
 * Returns the segment that would be current next, unless its row in outbox.ring
 * is locked; -1 if none is empty.
 */
int
rotation_next(RingKind kind, const Ring *ring)
{
	for (int n = 0; n < ring->nsegments; n++)
	{
		if (may_be_next(kind, ring, n))
			return n;
	}
	return -1;
}

/*
 * Measures the current segment, and returns whether it is full, so that rotation
 * cannot wait for the end of its share of time. Records go to small tables,
 * because their hashed keys touch pages at random. When segments become scarce,
 * because nothing is published or because a lock or an old snapshot keeps what was
 * compacted, each may become twice as large as the one before, so that the
 * remaining ones last.
 */
bool
rotation_measure_current(RingKind kind, const Ring *ring)
{
	int64		limit = outbox_record_segment_size / (BLCKSZ / 1024);
	int			used = 0;
	BlockNumber blocks;

	if (kind != RING_RECORD || !segment_try_lock(kind, ring->current))
		return false;
	for (int n = 0; n < ring->nsegments; n++)
		used += ring->segments[n].state != SEGMENT_EMPTY;
	if (used > ring->nsegments / 2)
		limit <<= used - ring->nsegments / 2;
	blocks = segment_blocks(kind, ring->current);
	return blocks >= limit || note_checkpoint(blocks, limit);
}

/*
 * Returns whether a checkpoint has begun since the current record segment became
 * current, or was small; notes the last one if not. Every page of its index would
 * go to the WAL as a whole when it is changed for the first time after that, and
 * hashed keys change nearly all of them; those of a new table do not.
 */
static bool
note_checkpoint(BlockNumber blocks, int64 limit)
{
	XLogRecPtr	redo = GetRedoRecPtr();

	if (redo_of_current == 0 || blocks < limit / CHECKPOINT_SHARE)
		redo_of_current = redo;
	return redo_of_current != redo;
}

/*
 * Makes an empty segment current, `next` or one behind it, if the current one has
 * been written for its share of time and is not empty, or is full. Returns false
 * if the extension is being dropped.
 */
bool
rotation_run(RingKind kind, int next, const Ring *ring, const Position *position)
{
	const Segment *sealed = &ring->segments[ring->current];
	uint64		tag = 0;		/* 0 = nothing was changed */
	bool		is_old;

	/* A clock that was ahead may have been set back since. */
	is_old = llabs(GetCurrentTimestamp() - sealed->since) >= share_of_time(kind);
	if (!transaction_begin("rotating a ring"))
		return false;
	segment_quarantine_touch(kind, ring->current);
	if ((is_old ? segment_try_lock(kind, ring->current) && segment_blocks(kind, ring->current) > 0 : rotation_measure_current(kind, ring)) &&
		ring_update_try_lock(kind, ring->current) && (next = lock_next(kind, ring, next)) >= 0)
	{
		if (kind == RING_RECORD)
			redo_of_current = GetRedoRecPtr();
		ring_update_state(kind, ring->current, SEGMENT_SEALED);
		ring_update_state(kind, next, SEGMENT_CURRENT);
		tag = U64FromFullTransactionId(GetTopFullTransactionId());

		/* It is there before any session can write to the segment. */
		if (kind == RING_RECORD)
			filter_builder_begin_current(next, tag);
		if (kind == RING_LOG)
		{
			Window		newest = position->opened;

			newest.published = Max(newest.published, position->published);
			newest.propagated = Max(newest.propagated, position->propagated);
			window_row_append(&newest, next);
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

/* Check whether a segment is empty and nothing is known to be wrong with it. */
static bool
may_be_next(RingKind kind, const Ring *ring, int n)
{
	return ring->segments[n].state == SEGMENT_EMPTY && !segment_quarantine_holds(kind, n);
}

/*
 * Locks the row of the first segment from `next` on that may be current next, and
 * whose table and row can be locked at once. Returns -1 if there is none.
 */
static int
lock_next(RingKind kind, const Ring *ring, int next)
{
	for (int n = next; n < ring->nsegments; n++)
	{
		segment_quarantine_touch(kind, n);
		if (may_be_next(kind, ring, n) && segment_try_lock_to_write(kind, n) && ring_update_try_lock(kind, n))
			return n;
	}
	return -1;
}

/* Returns how long a segment is written, in microseconds. */
static int64
share_of_time(RingKind kind)
{
	return expiry_time_to_live(kind) / (kind == RING_LOG ? LOG_SHARES : RECORD_SHARES);
}
