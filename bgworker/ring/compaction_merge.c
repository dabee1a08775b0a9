/*
 * compaction_merge.c
 *		Merges the keys of segments into one segment of the history.
 *
 * Called by compaction_step.c, one bounded step at a time, with what
 * compaction_choice.c has chosen; and by emptying.c, to forget what was counted.
 *
 *	   sources: quiet ---------------------------> retired --> empty
 *	   target:  empty --> filling --> ... -------> quiet
 *				(1)		  (2)				(3)
 *
 * (1) The sources are chosen and name their target. (2) The first steps count
 * the keys of each endpoint in one source each. Each of the others merges the
 * next keys of all sources into rows of the target, which is not read yet. (3)
 * One transaction makes the target readable and makes readers skip the sources.
 *
 * At every moment each key is in a segment that is read. A process that dies
 * leaves a target that is filled up to some key; the next one continues after
 * that key. The steps need not be flushed: they reach the disk before (3) does.
 *
 * The target's filter is built along with it. If an earlier process began the merge, that is left
 * to filter_builder.c. segment_quarantine.c is told of each segment before it is worked on.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/compaction_merge.h"
#include "bgworker/ring/key_run.h"
#include "bgworker/ring/ring_update.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/ring/filter.h"
#include "src/ring/history.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/* The most rows of the target that a step writes. */
#define STEP_ROWS		32

static bool filtering;			/* keys are added to a filter as well, because
								 * this process began the merge */
static int	counting = -1;		/* target of the merge whose sources are being
								 * counted; -1 = of none by this process */
static int	counted;			/* sources that have been */

static bool count_endpoints(const Merge *merge);
static void count_endpoints_of_history(const Merge *merge);
static void count_endpoints_of_records(const Merge *merge, int source);
static bool merge_keys(const Merge *merge, int64 step_us);
static bool finish(const Merge *merge);
static void release(const Rings *rings, const Merge *merge);
static bool lock_rows(const Merge *merge);
static bool lock_tables(const Merge *merge);
static Relation open_target(const Merge *merge);
static int64 count_keys(Relation table);
static bool write_rows(const Merge *merge, Relation table, int64 step_us);
static KeyRun *open_runs(const Merge *merge, const pg_uuid_t *after);
static void append_row(const Merge *merge, Relation table, pg_uuid_t *keys, int n);
static int	least(KeyRun *runs, int n);
static int	read_last_row(Relation table, pg_uuid_t *key);

/* Finds the merge that is under way. Returns false if there is none. Its sources are of one ring. */
bool
merge_find(const Rings *rings, Merge *merge)
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
				segment_quarantine_touch(RING_HISTORY, merge->target);
				if (merge->n > 0 && merge->kind != (RingKind) kind)
					elog(ERROR, "outbox.ring has sources of two rings for segment %d of the history", merge->target);
				merge->kind = (RingKind) kind;
				merge->sources[merge->n++] = n;
			}
		}
	}
	return merge->target >= 0;
}

/*
 * Begins a merge: (1), in the open transaction, which it ends. Returns false if a
 * row of outbox.ring is locked: then the next round of cleanup tries again.
 */
bool
merge_begin(const Rings *rings, const Merge *merge)
{
	int64		keys = 0;

	segment_quarantine_touch(RING_HISTORY, merge->target);
	if (!lock_rows(merge))
	{
		transaction_commit();
		return false;
	}
	for (int i = 0; i < merge->n; i++)
	{
		segment_quarantine_touch(merge->kind, merge->sources[i]);
		keys += segment_count_keys(merge->kind, merge->sources[i], &rings->ring[merge->kind].segments[merge->sources[i]]);
	}
	segment_quarantine_touch(RING_HISTORY, merge->target);
	filtering = filter_begin(FILTER_OF_MERGE, keys);
	counting = -1;
	ring_update_begin_merge(merge->target, merge->kind, merge->sources, merge->n);
	KILL_POINT("merge_begin_written");
	transaction_commit();
	KILL_POINT("merge_begin_committed");
	transaction_tell_rings();
	return true;
}

/*
 * Does a step of (2), or (3), in the open transaction, which it ends. After `step_us` a step ends
 * with the row being filled: each key may be on another page. Returns false if a table is locked,
 * or (3) is due and a row of outbox.ring is: then the next round of cleanup tries again.
 */
bool
merge_continue(const Rings *rings, const Merge *merge, int64 step_us)
{
	uint64		tag;
	bool		is_done;

	if (!lock_tables(merge))
	{
		transaction_commit();
		return false;
	}
	segment_quarantine_touch(RING_HISTORY, merge->target);
	is_done = !count_endpoints(merge) && !merge_keys(merge, step_us);
	if (!is_done || !finish(merge))
	{
		KILL_POINT("merge_step_written");
		transaction_commit_async();
		KILL_POINT("merge_step_committed");
		return !is_done;
	}
	KILL_POINT("merge_end_written");
	tag = U64FromFullTransactionId(GetTopFullTransactionId());
	transaction_commit();
	KILL_POINT("merge_end_committed");

	/* The filter is there before the target is read. */
	if (filtering)
		filter_publish(FILTER_OF_MERGE, RING_HISTORY, merge->target, tag);
	filtering = false;
	counting = -1;
	release(rings, merge);
	transaction_tell_rings();
	return true;
}

/*
 * Gives up the merge that is under way, if there is one, after a failure. If even this fails, as
 * when the disk is full or a row of outbox.ring is locked, the next round of cleanup tries again.
 */
void
merge_give_up(void)
{
	Rings		rings;
	Merge		merge;

	filtering = false;
	counting = -1;
	filter_abandon(FILTER_OF_MERGE);
	if (!transaction_begin("giving up a merge"))
		return;
	PG_TRY();
	{
		rings_read(&rings);
		if (merge_find(&rings, &merge) && lock_rows(&merge))
			ring_update_abandon_merge(merge.target);
		transaction_commit();
		transaction_tell_rings();
	}
	PG_CATCH();
	{
		segment_quarantine_catch_touched(COMPACTION_FAILED);
	}
	PG_END_TRY();
}

/*
 * Notes how many keys of each endpoint the next source has, because a compacted
 * key does not say which endpoint it is of. Returns false if all sources are
 * counted. How far this got is known to this process only: another one counts
 * them all again.
 */
static bool
count_endpoints(const Merge *merge)
{
	int			all = merge->kind == RING_HISTORY ? 1 : merge->n;

	if (counting != merge->target)
	{
		merge_forget_endpoints(merge->target);
		counted = 0;
	}
	counting = merge->target;
	if (counted == all)
		return false;
	if (merge->kind == RING_HISTORY)
		count_endpoints_of_history(merge);
	else
		count_endpoints_of_records(merge, merge->sources[counted]);
	counted++;
	return true;
}

/* Forgets how many keys of each endpoint a segment of the history has. */
void
merge_forget_endpoints(int target)
{
	(void) transaction_execute("DELETE FROM outbox.compacted WHERE segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
}

/* Adds up what is known of all sources. */
static void
count_endpoints_of_history(const Merge *merge)
{
	(void) transaction_execute("INSERT INTO outbox.compacted SELECT $1, p.endpoint, sum(p.records) "
							   "FROM outbox.compacted p JOIN outbox.ring r USING (segment) "
							   "WHERE r.ring = 'history' AND r.compacted_into = $1 GROUP BY p.endpoint",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(merge->target)}, NULL);
}

/* Counts the rows of a source. One that has grown large is estimated from its beginning. See record_ring_endpoint(). */
static void
count_endpoints_of_records(const Merge *merge, int source)
{
	BlockNumber blocks = segment_blocks(RING_RECORD, source);

	segment_quarantine_touch(merge->kind, source);
	(void) transaction_execute(psprintf("INSERT INTO outbox.compacted "
										"SELECT $1, CASE WHEN msgid IS NULL THEN endpoint ELSE coalesce(endpoint, '%s') END, "
										"(count(*) * %f)::bigint FROM outbox.record_%d WHERE ctid < '(%u,0)' GROUP BY 2",
										DEFAULT_ENDPOINT, Max(1.0, (double) blocks / COUNTED_BLOCKS), source, COUNTED_BLOCKS),
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(merge->target)}, NULL);
}

/* Does (2). Returns whether there is more to merge. */
static bool
merge_keys(const Merge *merge, int64 step_us)
{
	Relation	table = open_target(merge);
	bool		more = write_rows(merge, table, step_us);

	table_close(table, NoLock);
	return more;
}

/* Does (3). Returns false if a row of outbox.ring is locked. */
static bool
finish(const Merge *merge)
{
	Relation	table;

	if (!lock_rows(merge))
		return false;
	table = open_target(merge);
	ring_update_finish_merge(merge->target, count_keys(table));
	table_close(table, NoLock);
	return true;
}

/*
 * Notes that a merge has succeeded. Any empty segment could have been its target, and
 * nothing else is done with those that could fail.
 */
static void
release(const Rings *rings, const Merge *merge)
{
	const Ring *history = &rings->ring[RING_HISTORY];

	for (int i = 0; i < merge->n; i++)
		segment_quarantine_release(merge->kind, merge->sources[i]);
	for (int n = 0; n < history->nsegments; n++)
	{
		if (n == merge->target || history->segments[n].state == SEGMENT_EMPTY)
			segment_quarantine_release(RING_HISTORY, n);
	}
}

/* Locks the rows of the target and of the sources in outbox.ring. Returns false if one of them is locked. */
static bool
lock_rows(const Merge *merge)
{
	if (!ring_update_try_lock(RING_HISTORY, merge->target))
		return false;
	for (int i = 0; i < merge->n; i++)
	{
		if (!ring_update_try_lock(merge->kind, merge->sources[i]))
			return false;
	}
	return true;
}

/* Locks what is written, and the sources, to be read. Returns false if that would wait. */
static bool
lock_tables(const Merge *merge)
{
	bool		locked = segment_try_lock_to_write(RING_HISTORY, merge->target) &&
		ConditionalLockRelationOid(relations_enter()->compacted, RowExclusiveLock);

	for (int i = 0; locked && i < merge->n; i++)
		locked = segment_try_lock(merge->kind, merge->sources[i]);
	return locked;
}

/* Opens the table of the target, to be written to. */
static Relation
open_target(const Merge *merge)
{
	return own_table_open(relations_enter()->segments[RING_HISTORY][merge->target].table, OWN_HISTORY, RowExclusiveLock);
}

/* Returns how many keys the target holds. A row fills a page. */
static int64
count_keys(Relation table)
{
	pg_uuid_t	last;
	int			in_last_row = read_last_row(table, &last);

	return in_last_row == 0 ? 0 : (RelationGetNumberOfBlocks(table) - 1) * (int64) HISTORY_KEYS + in_last_row;
}

/* Writes the next rows of the target. Returns whether there are more. */
static bool
write_rows(const Merge *merge, Relation table, int64 step_us)
{
	pg_uuid_t  *keys = palloc(HISTORY_KEYS * sizeof(pg_uuid_t));
	pg_uuid_t	last;
	bool		has_last = read_last_row(table, &last) > 0;
	KeyRun	   *runs = open_runs(merge, has_last ? &last : NULL);
	TimestampTz deadline = clock_now() + step_us;
	bool		is_late = false;
	int			rows = 0;
	int			n = 0;
	int			from;

	while (rows < STEP_ROWS && !is_late && (from = least(runs, merge->n)) >= 0)
	{
		/* A key that had expired may have been claimed again. */
		if (!has_last || key_compare(&runs[from].key, &last) != 0)
		{
			last = keys[n++] = runs[from].key;
			has_last = true;
			if (filtering)
				filter_add(FILTER_OF_MERGE, &last);
		}
		segment_quarantine_touch(merge->kind, merge->sources[from]);
		key_run_advance(&runs[from]);
		if (n == HISTORY_KEYS)
		{
			append_row(merge, table, keys, n);
			rows++;
			is_late = clock_now() >= deadline;
			n = 0;
		}
	}
	from = least(runs, merge->n);
	segment_quarantine_touch(RING_HISTORY, merge->target);
	if (from < 0 && n > 0)
		append_row(merge, table, keys, n);
	for (int i = 0; i < merge->n; i++)
		key_run_close(&runs[i]);
	return from >= 0;
}

/* Begins to read the keys of all sources that come after that one; NULL = all keys. */
static KeyRun *
open_runs(const Merge *merge, const pg_uuid_t *after)
{
	KeyRun	   *runs = palloc(merge->n * sizeof(KeyRun));

	for (int i = 0; i < merge->n; i++)
	{
		segment_quarantine_touch(merge->kind, merge->sources[i]);
		key_run_open(&runs[i], merge->kind, merge->sources[i], after);
	}
	return runs;
}

/* Writes a row of the target. */
static void
append_row(const Merge *merge, Relation table, pg_uuid_t *keys, int n)
{
	segment_quarantine_touch(RING_HISTORY, merge->target);
	history_append(table, keys, n);
}

/* Returns the run with the least current key; -1 if all have ended. */
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

/* Reads the greatest key of the target. Returns how many keys its row has; 0 = the target is empty. */
static int
read_last_row(Relation table, pg_uuid_t *key)
{
	Relation	index = history_index(table);
	TupleTableSlot *row = table_slot_create(table, NULL);
	pg_uuid_t	highest;
	int			n = 0;

	memset(&highest, 0xff, sizeof(highest));
	if (history_row_before(table, index, &highest, row))
	{
		const pg_uuid_t *keys = history_row_keys(row, &n);

		*key = keys[n - 1];
	}
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	return n;
}
