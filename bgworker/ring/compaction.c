/*
 * compaction.c
 *		Merges segments of records, and of the history, into one of the history.
 *
 * Called by the dispatcher between windows, one bounded step at a time. What is
 * remembered must stay small on disk and in few segments: a full segment of records
 * takes over a hundred bytes for an id, a segment of the history sixteen; and each
 * segment is one more that a look must exclude.
 *
 *	   sources: quiet ---------------------------> retired --> empty
 *	   target:  empty --> filling --> ... -------> quiet
 *				(1)		  (2)				(3)
 *
 * (1) sources are chosen and name their target. (2) each step merges the next
 * keys of all sources into rows of the target; nobody else looks at it yet. (3)
 * one transaction makes the target readable and has readers skip the sources.
 *
 * At every moment a key is in a segment that is read. A process that dies leaves
 * a target that is filled up to some key, and its successor goes on after that.
 * The steps need not be flushed: they reach the disk before (3) does.
 *
 * It must never take a segment whose messages are not all published, for what is
 * compacted has forgotten its transaction.
 *
 * The target's filter is built on the way. If we did not begin the merge
 * ourselves that is left to filter_builder.c.
 *
 * An ERROR ends the merge and not the dispatcher: its sources stay what they
 * are, its target is emptied, and the segment at which it came up is left alone
 * for a while (quarantine.c). Before anything touches a segment it is noted in `at`.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/ring/compaction.h"
#include "bgworker/ring/key_run.h"
#include "bgworker/ring/quarantine.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/filter.h"
#include "src/record/history.h"
#include "src/table/relations.h"

/* So many segments of a level are merged into one of the next. */
#define FAN_IN			6

/* If no more segments of the history than these are empty, fewer must do. */
#define EMPTY_RESERVE	2

/*
 * A record is remembered at most this share of the longest retention more for
 * being in one segment with younger ones; twice that when such segments are merged
 * once more.
 */
#define SPAN_SHARES		4

/*
 * Rows of the target that a step writes at most. Where each key is on another
 * page it ends before, with the row that is full after so long: messages wait
 * meanwhile.
 */
#define STEP_ROWS		32
#define STEP_US			(5 * INT64CONST(1000))

/* What is merged into what. */
typedef struct Merge
{
	int			target;			/* segment of the history; -1 = nothing is merged */
	RingKind	kind;			/* of the sources */
	int			n;
	int			sources[MAX_SEGMENTS];
} Merge;

static bool awake = true;		/* there may be something to do */
static bool filtering;			/* keys go into a filter, too: since we began
								 * the merge ourselves */
static struct
{
	RingKind	kind;
	int			segment;
}			at;					/* the segment that is being worked on */

static void touch(RingKind kind, int segment);
static void step(void);
static bool give_up(void);
static void abandon(int target);
static void begin_merge(const Rings *rings, const Merge *merge);
static void continue_merge(const Merge *merge);
static bool find_merge(const Rings *rings, Merge *merge);
static bool choose(const Rings *rings, Merge *merge);
static bool choose_level(const Ring *ring, int level, int enough, int64 span, Merge *merge);
static int	candidates(RingKind kind, const Ring *ring, int level, int *segments);
static int	compare_published(const void *a, const void *b, void *arg);
static int	enough(const Ring *ring, int reserve);
static int	choose_target(const Ring *history);
static void begin(const Merge *merge);
static void count_endpoints(const Merge *merge);
static bool proceed(const Merge *merge);
static int64 count_keys(Relation table, int last_row);
static bool merge_rows(const Merge *merge, Relation table, int *last_row);
static int	least(KeyRun *runs, int n);
static bool last_key(Relation table, pg_uuid_t *key);
static void finish(const Merge *merge, int64 keys);

/* There may be something to merge: segments became quiet or were published. */
void
compaction_wake(void)
{
	awake = true;
}

/*
 * One step, if there is anything to do. True: there is more to do at once.
 * Opens and ends transactions of its own.
 */
bool
compaction_step(void)
{
	volatile bool failed = false;

	if (!awake || !transaction_begin("compacting records"))
		return false;
	PG_TRY();
	{
		step();
	}
	PG_CATCH();
	{
		quarantine_catch(at.kind, at.segment, "compaction");
		failed = true;
	}
	PG_END_TRY();
	if (failed)
		awake = give_up();
	return awake;
}

static void
touch(RingKind kind, int segment)
{
	at.kind = kind;
	at.segment = segment;
}

/* In the transaction that is open; ends it. */
static void
step(void)
{
	Rings		rings;
	Merge		merge;

	touch(RING_HISTORY, 0);
	rings_read(&rings);
	if (find_merge(&rings, &merge))
		continue_merge(&merge);
	else if (choose(&rings, &merge))
		begin_merge(&rings, &merge);
	else
	{
		transaction_commit();
		awake = false;
	}
}

/*
 * After a failure. True: others may be merged at once. If even that fails, as
 * where the disk is full, the next round of cleanup tries again.
 */
static bool
give_up(void)
{
	Rings		rings;
	Merge		merge;
	volatile bool failed = false;

	filtering = false;
	filter_abandon(FILTER_OF_MERGE);
	if (!transaction_begin("giving up a merge"))
		return false;
	PG_TRY();
	{
		rings_read(&rings);
		if (find_merge(&rings, &merge))
			abandon(merge.target);
		transaction_commit();
		transaction_tell_rings();
	}
	PG_CATCH();
	{
		quarantine_catch(at.kind, at.segment, "compaction");
		failed = true;
	}
	PG_END_TRY();
	return !failed;
}

/* Nobody has read the target yet, so it may go like one that has expired. */
static void
abandon(int target)
{
	(void) transaction_execute("UPDATE outbox.ring SET compacted_into = NULL, "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "WHERE compacted_into = $1 AND state = 'quiet'",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
	(void) transaction_execute("UPDATE outbox.ring SET state = 'retired', since = clock_timestamp(), "
							   "tx = pg_current_xact_id(), "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "WHERE ring = 'history' AND segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
}

static void
begin_merge(const Rings *rings, const Merge *merge)
{
	int64		keys = 0;

	touch(RING_HISTORY, merge->target);
	for (int i = 0; i < merge->n; i++)
		keys += segment_count_keys(merge->kind, merge->sources[i], &rings->ring[merge->kind].segments[merge->sources[i]]);
	filtering = filter_begin(FILTER_OF_MERGE, keys);
	begin(merge);
	KILL_POINT("merge_begin_written");
	transaction_commit();
	KILL_POINT("merge_begin_committed");
	transaction_tell_rings();
}

static void
continue_merge(const Merge *merge)
{
	uint64		tag;

	touch(RING_HISTORY, merge->target);
	if (proceed(merge))
	{
		KILL_POINT("merge_step_written");
		transaction_commit_async();
		KILL_POINT("merge_step_committed");
		return;
	}
	KILL_POINT("merge_end_written");
	tag = U64FromFullTransactionId(GetTopFullTransactionId());
	transaction_commit();
	KILL_POINT("merge_end_committed");

	/* The filter is there before anybody looks into the target. */
	if (filtering)
		filter_publish(FILTER_OF_MERGE, RING_HISTORY, merge->target, tag);
	filtering = false;
	for (int i = 0; i < merge->n; i++)
		quarantine_passed(merge->kind, merge->sources[i]);
	quarantine_passed(RING_HISTORY, merge->target);
	transaction_tell_rings();
}

/* The merge that is under way. */
static bool
find_merge(const Rings *rings, Merge *merge)
{
	memset(merge, 0, sizeof(*merge));
	merge->target = -1;
	for (int n = 0; n < rings->ring[RING_HISTORY].nsegments; n++)
	{
		if (rings->ring[RING_HISTORY].segments[n].state == SEGMENT_FILLING)
			merge->target = n;
	}
	for (int kind = RING_RECORD; kind < RING_KINDS && merge->target >= 0; kind++)
	{
		for (int n = 0; n < rings->ring[kind].nsegments; n++)
		{
			const Segment *segment = &rings->ring[kind].segments[n];

			if (segment->state == SEGMENT_QUIET && segment->compacted_into == merge->target)
			{
				merge->kind = (RingKind) kind;
				merge->sources[merge->n++] = n;
			}
		}
	}
	return merge->target >= 0;
}

/* What to merge next: the lowest level that has enough segments. */
static bool
choose(const Rings *rings, Merge *merge)
{
	const Ring *history = &rings->ring[RING_HISTORY];
	int64		span = endpoint_longest_retention() / SPAN_SHARES;
	int			levels = 0;

	memset(merge, 0, sizeof(*merge));
	merge->target = choose_target(history);
	if (merge->target < 0)
		return false;

	merge->kind = RING_RECORD;
	if (choose_level(&rings->ring[RING_RECORD], 0, enough(&rings->ring[RING_RECORD], 0), span, merge))
		return true;

	merge->kind = RING_HISTORY;
	for (int n = 0; n < history->nsegments; n++)
		levels = Max(levels, history->segments[n].level);
	for (int level = 1; level <= levels; level++)
	{
		if (choose_level(history, level, enough(history, EMPTY_RESERVE), span, merge))
			return true;
	}
	return false;
}

/*
 * Takes the oldest segments of a level: enough of them, or fewer if their time is
 * up, for the one that follows was published too long after the first.
 */
static bool
choose_level(const Ring *ring, int level, int enough, int64 span, Merge *merge)
{
	int			segments[MAX_SEGMENTS];
	int			n = candidates(merge->kind, ring, level, segments);

	for (int first = 0; first < n; first++)
	{
		TimestampTz until = ring->segments[segments[first]].published_at + span;
		int			end = first;

		while (end < n && end - first < FAN_IN && ring->segments[segments[end]].published_at <= until)
			end++;
		if (end == n && end - first < enough)
			return false;		/* its time is not up yet */
		if (end - first >= 2)
		{
			merge->n = end - first;
			memcpy(merge->sources, segments + first, merge->n * sizeof(int));
			return true;
		}
	}
	return false;
}

/* The segments that could be merged, the oldest first; returns how many. */
static int
candidates(RingKind kind, const Ring *ring, int level, int *segments)
{
	int			n = 0;

	for (int i = 0; i < ring->nsegments; i++)
	{
		const Segment *segment = &ring->segments[i];

		if (segment->state == SEGMENT_QUIET && segment->published_at != 0 && segment->level == level &&
			!quarantine_holds(kind, i))
			segments[n++] = i;
	}
	qsort_arg(segments, n, sizeof(int), compare_published, (void *) ring);
	return n;
}

static int
compare_published(const void *a, const void *b, void *arg)
{
	const Ring *ring = arg;
	TimestampTz at_a = ring->segments[*(const int *) a].published_at;
	TimestampTz at_b = ring->segments[*(const int *) b].published_at;

	return at_a < at_b ? -1 : at_a > at_b;
}

/* How many segments are enough for a merge: fewer if no more than `reserve` are empty. */
static int
enough(const Ring *ring, int reserve)
{
	int			nempty = 0;

	for (int n = 0; n < ring->nsegments; n++)
		nempty += ring->segments[n].state == SEGMENT_EMPTY;
	return nempty > reserve ? FAN_IN : 2;
}

/* A segment of the history that nothing is in, -1 if there is none. */
static int
choose_target(const Ring *history)
{
	for (int n = 0; n < history->nsegments; n++)
	{
		if (history->segments[n].state == SEGMENT_EMPTY && !quarantine_holds(RING_HISTORY, n) &&
			segment_blocks(RING_HISTORY, n) == 0)
			return n;
	}
	return -1;
}

/* (1) */
static void
begin(const Merge *merge)
{
	(void) transaction_execute("UPDATE outbox.ring SET state = 'filling', since = clock_timestamp(), "
							   "tx = pg_current_xact_id(), "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "WHERE ring = 'history' AND segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(merge->target)}, NULL);
	for (int i = 0; i < merge->n; i++)
		(void) transaction_execute("UPDATE outbox.ring SET compacted_into = $3, "
								   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
								   "WHERE ring = $1 AND segment = $2",
								   3, (Oid[]) {TEXTOID, INT4OID, INT4OID},
								   (Datum[]) {CStringGetTextDatum(ring_name(merge->kind)),
								   Int32GetDatum(merge->sources[i]), Int32GetDatum(merge->target)}, NULL);
	count_endpoints(merge);
}

/*
 * Keys do not tell of their endpoint: how many each has is noted while it is
 * known. A segment that has grown large is estimated from its beginning.
 */
static void
count_endpoints(const Merge *merge)
{
	if (merge->kind == RING_HISTORY)
	{
		(void) transaction_execute("INSERT INTO outbox.compacted SELECT $1, p.endpoint, sum(p.records) "
								   "FROM outbox.compacted p JOIN outbox.ring r USING (segment) "
								   "WHERE r.ring = 'history' AND r.compacted_into = $1 GROUP BY p.endpoint",
								   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(merge->target)}, NULL);
		return;
	}
	for (int i = 0; i < merge->n; i++)
	{
		BlockNumber blocks = segment_blocks(RING_RECORD, merge->sources[i]);

		touch(merge->kind, merge->sources[i]);
		(void) transaction_execute(psprintf("INSERT INTO outbox.compacted "
											"SELECT $1, endpoint, (count(*) * %f)::bigint FROM outbox.record_%d "
											"WHERE ctid < '(%u,0)' GROUP BY endpoint",
											Max(1.0, (double) blocks / COUNTED_BLOCKS), merge->sources[i], COUNTED_BLOCKS),
								   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(merge->target)}, NULL);
	}
}

/* (2), and (3) when all is merged: then it returns false. */
static bool
proceed(const Merge *merge)
{
	Relation	table = table_open(relations_enter()->segments[RING_HISTORY][merge->target].table, RowExclusiveLock);
	int			last_row = 0;
	bool		more = merge_rows(merge, table, &last_row);

	if (!more)
		finish(merge, count_keys(table, last_row));
	table_close(table, NoLock);
	return more;
}

/*
 * A row fills a page. If the last step found nothing left to write, the last
 * row is a full one.
 */
static int64
count_keys(Relation table, int last_row)
{
	int64		rows = RelationGetNumberOfBlocks(table);

	if (rows == 0)
		return 0;
	return (rows - 1) * HISTORY_KEYS + (last_row > 0 ? last_row : HISTORY_KEYS);
}

/*
 * Writes the next rows of the target. Returns whether there are more; if not,
 * the keys of the last row are counted in *last_row.
 */
static bool
merge_rows(const Merge *merge, Relation table, int *last_row)
{
	KeyRun	   *runs = palloc(merge->n * sizeof(KeyRun));
	pg_uuid_t  *keys = palloc(HISTORY_KEYS * sizeof(pg_uuid_t));
	pg_uuid_t	last;
	bool		has_last = last_key(table, &last);
	TimestampTz deadline = clock_now() + STEP_US;
	bool		is_late = false;
	int			rows = 0;
	int			n = 0;
	int			from;

	for (int i = 0; i < merge->n; i++)
	{
		touch(merge->kind, merge->sources[i]);
		key_run_open(&runs[i], merge->kind, merge->sources[i], has_last ? &last : NULL);
	}

	while (rows < STEP_ROWS && !is_late && (from = least(runs, merge->n)) >= 0)
	{
		/* One that had expired may have been claimed once more. */
		if (!has_last || key_compare(&runs[from].key, &last) != 0)
		{
			last = keys[n++] = runs[from].key;
			has_last = true;
			if (filtering)
				filter_add(FILTER_OF_MERGE, &last);
		}
		touch(merge->kind, merge->sources[from]);
		key_run_advance(&runs[from]);
		if (n == HISTORY_KEYS)
		{
			touch(RING_HISTORY, merge->target);
			history_append(table, keys, n);
			rows++;
			is_late = clock_now() >= deadline;
			*last_row = n;
			n = 0;
		}
	}
	from = least(runs, merge->n);
	touch(RING_HISTORY, merge->target);
	if (from < 0 && n > 0)
	{
		history_append(table, keys, n);
		*last_row = n;
	}

	for (int i = 0; i < merge->n; i++)
		key_run_close(&runs[i]);
	return from >= 0;
}

/* The run that stands at the least key, -1 if all have ended. */
static int
least(KeyRun *runs, int n)
{
	int			found = -1;

	for (int i = 0; i < n; i++)
	{
		if (!runs[i].ended && (found < 0 || key_compare(&runs[i].key, &runs[found].key) < 0))
			found = i;
	}
	return found;
}

/* The greatest key of the target; false if it is empty. */
static bool
last_key(Relation table, pg_uuid_t *key)
{
	Relation	index = history_index(table);
	TupleTableSlot *row = table_slot_create(table, NULL);
	pg_uuid_t	highest;
	bool		found;

	memset(&highest, 0xff, sizeof(highest));
	found = history_row_before(table, index, &highest, row);
	if (found)
	{
		int			n;
		const pg_uuid_t *keys = history_row_keys(row, &n);

		*key = keys[n - 1];
	}
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	return found;
}

/* (3) */
static void
finish(const Merge *merge, int64 keys)
{
	(void) transaction_execute("UPDATE outbox.ring r SET state = 'quiet', since = clock_timestamp(), "
							   "tx = pg_current_xact_id(), published_at = s.published_at, level = s.level + 1, keys = $2, "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "FROM (SELECT max(published_at) AS published_at, max(level) AS level "
							   "FROM outbox.ring WHERE compacted_into = $1 AND state = 'quiet') s "
							   "WHERE r.ring = 'history' AND r.segment = $1",
							   2, (Oid[]) {INT4OID, INT8OID},
							   (Datum[]) {Int32GetDatum(merge->target), Int64GetDatum(keys)}, NULL);
	(void) transaction_execute("UPDATE outbox.ring SET state = 'retired', since = clock_timestamp(), "
							   "tx = pg_current_xact_id(), published_at = NULL, "
							   "generation = (SELECT max(generation) + 1 FROM outbox.ring) "
							   "WHERE compacted_into = $1 AND state = 'quiet'",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(merge->target)}, NULL);
}
