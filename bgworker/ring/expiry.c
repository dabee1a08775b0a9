/*
 * expiry.c
 *		Decides how long the contents of segments are kept, and retires segments.
 *
 * Called by cleanup_round.c and rotation.c. The time begins when everything in a
 * segment is published. Readers skip a segment that is retired; emptying.c
 * truncates it. Of an endpoint with a shorter retention, sessions do not count
 * older records any more (record_ring.c). Records in custom record tables expire
 * elsewhere (table_expiry.c).
 *
 * It must never retire a segment of the log that is not published as a whole.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/expiry.h"
#include "bgworker/ring/ring_update.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/forgotten.h"
#include "src/record/record_ring.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/relations.h"

/* When a segment was met, by clock_now(), and when it was published, which tells its contents from others. */
typedef struct Met
{
	TimestampTz published_at;
	TimestampTz at;
} Met;

static Met	met[RING_KINDS][MAX_SEGMENTS];

static int64 met_for(RingKind kind, int n, const Segment *segment);
static void note_expired(FullTransactionId tx);
static bool lock_live_segments(void);

/* Returns how long the contents of a ring are kept after they were published, in microseconds. */
int64
expiry_time_to_live(RingKind kind)
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

/*
 * Check whether the contents of a published segment have been kept long enough, unless it
 * is being compacted. If they seem to be published so far ahead of now that a clock is, or
 * was, wrong, they are kept for their time from when this process has met them: a clock
 * that is behind for a moment must make nothing expire when it is right again.
 */
bool
expiry_is_due(RingKind kind, int n, const Segment *segment)
{
	int64		age = GetCurrentTimestamp() - segment->published_at;
	int64		ttl;

	if (segment->compacted_into >= 0)
		return false;
	ttl = expiry_time_to_live(kind);
	return age > ttl || (age < -ttl && met_for(kind, n, segment) > ttl);
}

/* Returns for how long this process has known that what is in a segment is published, by a clock that is never set. */
static int64
met_for(RingKind kind, int n, const Segment *segment)
{
	Met		   *it = &met[kind][n];

	if (it->published_at != segment->published_at)
		*it = (Met) {.published_at = segment->published_at, .at = clock_now()};
	return clock_now() - it->at;
}

/*
 * Retires a segment. Checks once more whether all of a log segment is published:
 * a dispatcher that noted it may have died before it wrote its position. Returns
 * false if the extension is being dropped.
 */
bool
expiry_retire(RingKind kind, int n, FullTransactionId tx, const Position *position)
{
	if (!transaction_begin("retiring a segment"))
		return false;
	if ((kind == RING_LOG && !position_has_published(position, tx)) || !ring_update_try_lock(kind, n))
	{
		transaction_commit();
		return true;
	}
	ring_update_state(kind, n, SEGMENT_RETIRED);
	if (kind != RING_LOG)
		note_expired(tx);
	KILL_POINT_OF_RING(kind, "retired_written");
	transaction_commit();
	KILL_POINT_OF_RING(kind, "retired_committed");
	transaction_tell_rings();
	return true;
}

/*
 * Tells sessions that records have expired of transactions before `tx`, which came when all of
 * them had ended. They are told before the records are gone, and of no more if that is rolled back.
 * All transactions that begin after ours can claim, though pg_resetwal may have made `tx` a later one.
 */
static void
note_expired(FullTransactionId tx)
{
	pg_atomic_uint64 *expired_tx = &shared_mine()->expired_tx;
	uint64		noted = Min(U64FromFullTransactionId(tx), U64FromFullTransactionId(GetTopFullTransactionId()));

	/* Only we write it. */
	pg_atomic_write_u64(expired_tx, Max(pg_atomic_read_u64(expired_tx), noted));
}

/*
 * Removes the tombstones of forgotten ids that are no longer in any segment, unless one
 * that is to be looked into is locked: then the next round does.
 * Returns false if the extension is being dropped.
 */
bool
expiry_delete_forgotten(void)
{
	if (!transaction_begin("forgetting tombstones"))
		return false;
	if (lock_live_segments())
		forgotten_expire(endpoint_longest_retention(), record_ring_holds);
	transaction_commit_async();
	return true;
}

/* Locks the tombstones, and all segments that an id is looked up in. Returns false if that would wait. */
static bool
lock_live_segments(void)
{
	Rings		rings;

	if (!ConditionalLockRelationOid(relations_enter()->forgotten, RowExclusiveLock))
		return false;
	rings_read(&rings);
	for (int kind = RING_RECORD; kind < RING_KINDS; kind++)
	{
		for (int n = 0; n < rings.ring[kind].nsegments; n++)
		{
			if (segment_is_live(&rings.ring[kind].segments[n]) && !segment_try_lock((RingKind) kind, n))
				return false;
		}
	}
	return true;
}
