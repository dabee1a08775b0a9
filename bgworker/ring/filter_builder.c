/*
 * filter_builder.c
 *		Gives segments their filters.
 *
 * Called by rotation.c when a segment of records becomes current: it gets an empty
 * filter, to which sessions add (src/ring/filter.c). Called by housekeeping.c between
 * windows, one bounded step at a time, for segments that have none, as after a
 * restart: those that are quiet get one that is built from their rows, and the current
 * one gets one only if it has no rows yet. Without a filter a lookup reads the segment
 * itself. A segment that cannot be read gets no filter and does not end the dispatcher
 * (segment_quarantine.c).
 */
#include "postgres.h"

#include "storage/lmgr.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/filter_builder.h"
#include "bgworker/ring/key_run.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/ring/filter.h"
#include "src/settings.h"
#include "src/table/relations.h"

#define STEP_KEYS		20000	/* the most that a step reads */
#define KEYS_PER_LOOK	500		/* keys read before the clock is checked */
#define RETRY_MS		1000	/* after a segment was locked, or left alone */

/* The segment whose filter is being built. */
static bool building;
static RingKind kind;
static int	segment;
static uint64 tag;
static pg_uuid_t last;
static bool has_last;

static int64 looked_at = -1;	/* generation at which nothing was left to do */
static TimestampTz next_try;	/* when to look again although nothing has
								 * changed: the current segment was locked, or
								 * one is left alone for a while; 0 = neither */

static void build(int64 step_us);
static bool is_still_there(const Rings *rings);
static void begin_current(const Rings *rings);
static bool begin_next(const Rings *rings);
static void fill(int64 step_us);

/*
 * Does one step, if there is anything to do. Returns true if there is more to
 * do at once. Begins and ends its own transaction.
 */
bool
filter_builder_step(int64 step_us)
{
	if (!building && rings_shared_generation() == looked_at && (next_try == 0 || clock_now() < next_try))
		return false;
	if (!transaction_begin("building a filter"))
		return false;
	PG_TRY();
	{
		build(step_us);
		transaction_commit();
	}
	PG_CATCH();
	{
		building = false;
		segment_quarantine_catch(kind, segment, "could not build the filter of outbox.%s_%d: %s");
		filter_abandon(FILTER_OF_SEGMENT);
	}
	PG_END_TRY();
	return true;
}

/* Continues the filter that is being built, or begins the next one, in the open transaction. */
static void
build(int64 step_us)
{
	Rings		rings;

	rings_read(&rings);
	filters_forget_stale(&rings);
	if (building && (!is_still_there(&rings) || !segment_try_lock(kind, segment)))
	{
		filter_abandon(FILTER_OF_SEGMENT);
		building = false;
	}
	if (!building)
		begin_current(&rings);
	if (building || begin_next(&rings))
		fill(step_us);
	else
		looked_at = rings.generation;
}

/*
 * Gives a segment of records that was not written to yet the filter that
 * sessions add to, if there is memory for one. The tag is the transaction that makes it
 * current.
 */
void
filter_builder_begin_current(int n, uint64 state_tag)
{
	if (!filter_begin(FILTER_OF_CURRENT, (int64) outbox_record_segment_size * 1024 / RECORD_BYTES))
		return;
	KILL_POINT("current_filter_begun");
	filter_publish(FILTER_OF_CURRENT, RING_RECORD, n, state_tag);
	KILL_POINT("current_filter_published");
}

/*
 * Begins the filter of the current segment of records, as after CREATE EXTENSION. A
 * ShareLock that is granted at once proves that no session is about to write a row
 * that the filter does not know of; if it is not granted, that is tried again while
 * the segment is empty, as it is if work on it has failed.
 */
static void
begin_current(const Rings *rings)
{
	Oid			table;

	next_try = 0;
	kind = RING_RECORD;
	segment = rings->ring[kind].current;
	if (filter_is_there(kind, segment, &rings->ring[kind].segments[segment]))
		return;
	if (!segment_quarantine_holds(kind, segment) && segment_try_lock(kind, segment))
	{
		if (segment_blocks(kind, segment) > 0)
			return;
		table = relations_enter()->segments[kind][segment].table;
		if (ConditionalLockRelationOid(table, ShareLock))
		{
			if (segment_blocks(kind, segment) == 0)
				filter_builder_begin_current(segment, U64FromFullTransactionId(rings->ring[kind].segments[segment].tx));
			UnlockRelationOid(table, ShareLock);
			return;
		}
	}
	next_try = TimestampTzPlusMilliseconds(clock_now(), RETRY_MS);
}

/* Check whether the segment still holds what the filter was begun for. */
static bool
is_still_there(const Rings *rings)
{
	const Segment *state = &rings->ring[kind].segments[segment];

	return state->state == SEGMENT_QUIET && U64FromFullTransactionId(state->tx) == tag;
}

/*
 * Chooses a quiet segment without a filter, if there is memory for one. One that is locked, or
 * left alone because its filter could not be built, is looked at again later: it need not
 * change until then.
 */
static bool
begin_next(const Rings *rings)
{
	for (int k = RING_RECORD; k < RING_KINDS; k++)
	{
		for (int n = 0; n < rings->ring[k].nsegments; n++)
		{
			const Segment *state = &rings->ring[k].segments[n];

			if (state->state != SEGMENT_QUIET || filter_is_there((RingKind) k, n, state))
				continue;
			if (segment_quarantine_holds((RingKind) k, n) || !segment_try_lock((RingKind) k, n))
			{
				next_try = TimestampTzPlusMilliseconds(clock_now(), RETRY_MS);
				continue;
			}
			kind = (RingKind) k;
			segment = n;
			tag = U64FromFullTransactionId(state->tx);
			if (!filter_begin(FILTER_OF_SEGMENT, segment_count_keys((RingKind) k, n, state)))
				continue;
			has_last = false;
			building = true;
			KILL_POINT("filter_begun");
			return true;
		}
	}
	return false;
}

/* Adds the next keys of the segment to its filter, and publishes it when it has all. */
static void
fill(int64 step_us)
{
	KeyRun		run;
	TimestampTz deadline = clock_now() + step_us;
	int			n = 0;

	key_run_open(&run, kind, segment, has_last ? &last : NULL);
	for (; n < STEP_KEYS && !run.ended; n++)
	{
		if (n % KEYS_PER_LOOK == KEYS_PER_LOOK - 1 && clock_now() >= deadline)
			break;
		filter_add(FILTER_OF_SEGMENT, &run.key);
		last = run.key;
		has_last = true;
		key_run_advance(&run);
	}
	if (run.ended)
	{
		KILL_POINT("filter_filled");
		filter_publish(FILTER_OF_SEGMENT, kind, segment, tag);
		KILL_POINT("filter_published");
		building = false;
		segment_quarantine_release(kind, segment);
	}
	key_run_close(&run);
}
