/*
 * position.c
 *		Opens windows, and tells how far publishing has got.
 *
 * Called by the dispatcher. A window is opened in one transaction: take a
 * snapshot S; if messages were committed since the last snapshot, insert
 * {number, uuid, S} and commit synchronously. That commit makes the window
 * immutable, and flushes the WAL of every transaction visible in S before any
 * of its messages is sent. The window's own transaction id is taken after S, so
 * that after a crash no id below xmax(S) is assigned again.
 *
 *	 died before the commit		the next look finds the same messages
 *	 after it, before sending	the row is there, the fence names an earlier one
 *	 between batches				the fence names this window and the last message
 *	 after the last batch		as above; nothing is left of the window
 *
 * The fence in Redis tells how far publishing has got. `published` in the rows
 * of the window tables is what was known when they were written: it never runs
 * ahead, so expiry and the views can rely on it. The same holds for
 * `propagated`, which tells how far propagation.c got with the receipts of what
 * is published.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/tuptable.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/publish/position.h"
#include "bgworker/report.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/log/log.h"
#include "src/store/store.h"
#include "src/table/relations.h"
#include "src/unique_id.h"

/* A window that is being opened. */
typedef struct Opening
{
	int64		number;
	pg_uuid_t	uuid;
	TimestampTz oldest;			/* when the oldest message was enqueued; 0 =
								 * there is none */
	int64		receipts;		/* they are not among the rows */
	WindowRows	rows;
} Opening;

static void keep_window(Window *kept, const Window *window);
static void keep_snapshot(SnapshotValue **kept, const SnapshotValue *snapshot);
static void append_window(Position *position, const SnapshotValue *snapshot, Opening *opening);
static void look(const Position *position, const SnapshotValue *now, Opening *opening);
static bool collect_row(TupleTableSlot *row, int segment, void *arg);
static void keep_rows(Position *position, Opening *opening);

/*
 * Reads from the tables how far publishing had got. Nothing from before the end
 * of `first_window` is ever sent again. Needs an open transaction.
 */
void
position_load(Position *position, int64 first_window)
{
	Window		newest;

	if (!window_newest(&newest))
		elog(ERROR, "no window is left");
	keep_window(&position->opened, &newest);
	keep_snapshot(&position->looked, newest.snapshot);

	/*
	 * Windows that have been removed had been published, whatever the row
	 * says.
	 */
	position->published = Max(newest.published, window_oldest_number());
	position->sent = position->published;
	position->propagated = Min(Max(newest.propagated, window_oldest_number()), position->published);
	position->marked = newest.number;
	position->touched = (WindowPlace) {.window = newest.number, .id = PG_INT64_MAX};
	position->first_window = first_window;
	position->resume_after = 0;
	run_clear(&position->run);
	report_published(position->published, position->propagated);
}

/*
 * Opens the next window if messages were committed since the last look. Returns
 * whether there is a new window.
 */
bool
position_open_window(Position *position)
{
	SnapshotValue *now;
	Opening		opening = {.number = position->opened.number + 1};

	if (!transaction_begin("looking for messages"))
		return false;
	now = snapshot_value_now();
	look(position, now, &opening);
	if (opening.rows.n == 0 && opening.receipts == 0)
	{
		keep_snapshot(&position->looked, now);
		transaction_commit();
		return false;
	}

	KILL_POINT("messages_found");
	append_window(position, now, &opening);
	KILL_POINT("window_written");
	transaction_commit();
	KILL_POINT("window_committed");
	if (opening.receipts > 0)
		position->marked = position->opened.number;
	keep_rows(position, &opening);
	return true;
}

/*
 * Appends an empty window, which notes on disk that everything up to its
 * snapshot is published. Must be called only if that is so. Returns false if
 * the extension is being dropped.
 */
bool
position_close(Position *position)
{
	if (!transaction_begin("noting the position"))
		return false;
	position_append_empty(position, position->looked);
	KILL_POINT("closing_written");
	transaction_commit();
	KILL_POINT("closing_committed");
	position_note_all_published(position);
	return true;
}

/*
 * The same when we stop publishing: does not wait for a lock nor for a standby,
 * and so may do nothing. The fence stays where it is: it may name a window
 * older than this one, but none that a standby lacks.
 */
void
position_close_at_once(Position *position)
{
	Rings		rings;

	if (!position_is_caught_up(position) || position->opened.published >= position->published ||
		!transaction_begin("noting the position"))
		return;
	rings_read(&rings);
	if (ConditionalLockRelationOid(relations_enter()->segments[RING_LOG][rings.ring[RING_LOG].current].window, RowExclusiveLock))
		position_append_empty(position, position->looked);
	transaction_commit_local();
	position_note_all_published(position);
}

/* Notes that the receipts of all windows up to this one have been propagated. */
void
position_propagate(Position *position, int64 upto)
{
	position->propagated = upto;
	position_note_published(position);
}

/*
 * Returns the window up to which a store has all ids: the one that its
 * watermark names or, if that is not kept, the oldest one that is. Needs an
 * open transaction.
 */
int64
position_of_watermark(const char *watermark)
{
	int64		oldest = window_oldest_number();
	long long	number;
	Window		window;
	char		expected[STORE_WATERMARK_BYTES];

	if (sscanf(watermark, "%lld ", &number) != 1 || number <= oldest || !window_fetch(number, &window))
		return oldest;
	position_write_watermark(window.number, &window.uuid, expected, sizeof(expected));
	return strcmp(watermark, expected) == 0 ? number : oldest;
}

/*
 * Assumes that all windows after that one have receipts, so that they are
 * propagated once more.
 */
void
position_expect_receipts_after(Position *position, int64 number)
{
	position->propagated = Min(position->propagated, number);
	position->marked = position->opened.number;
	report_published(position->published, position->propagated);
}

/* Writes the watermark of a store that has all ids up to the end of a window. */
void
position_write_watermark(int64 number, const pg_uuid_t *uuid, char *watermark, size_t size)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));

	snprintf(watermark, size, "%lld %s", (long long) number, text);
	pfree(text);
}

/*
 * Notes that all rows of the run before that one are in Redis, or deferred.
 * Returns whether another window counts as published.
 */
bool
position_advance(Position *position, int64 row)
{
	int64		sent = run_sent_upto(&position->run, position->sent, row);

	position->run.done = row;
	if (sent == position->sent)
		return false;
	position->told = 0;			/* what is found next is news */
	position->sent = sent;
	position->resume_after = 0;
	if (position->sent > position->published)
	{
		position->published = position->sent;
		position_note_published(position);
	}
	return true;
}

/* Frees what is kept of the run if all of it is sent. */
void
position_end_run(Position *position)
{
	if (position->run.last <= position->sent)
		run_clear(&position->run);
}

/*
 * Check whether all messages of all transactions up to `tx` that had ended when
 * it committed are in Redis, and their receipts propagated. `tx` must be a
 * transaction of the dispatcher.
 */
bool
position_has_published(const Position *position, FullTransactionId tx)
{
	Window		window;

	if (position->propagated == position->opened.number)
		return snapshot_value_sees(position->looked, tx);
	return window_at(position->propagated, &window) &&
		snapshot_value_sees(window.snapshot, tx);
}

/* Notes that the messages of all windows are in Redis. */
void
position_note_all_published(Position *position)
{
	position->told = 0;
	position->sent = position->published = position->opened.number;
	position_note_published(position);
}

/* Appends a window without messages. Needs an open transaction. */
void
position_append_empty(Position *position, const SnapshotValue *snapshot)
{
	append_window(position, snapshot, &(Opening) {.number = position->opened.number + 1});
}

/*
 * Check whether something that was found is not in the server log yet, and
 * notes that it will be. Each connection finds the same until a window gets
 * through.
 */
bool
position_is_news(Position *position, News news)
{
	bool		was_told = (position->told & news) != 0;

	position->told |= news;
	return !was_told;
}

/* Reports that `published` has changed. Windows without receipts count as propagated at once. */
void
position_note_published(Position *position)
{
	if (position->marked <= position->propagated)
		position->propagated = position->published;
	report_published(position->published, position->propagated);
}

/* Replaces a kept window, with its snapshot, by a copy that outlives the transaction. */
static void
keep_window(Window *kept, const Window *window)
{
	SnapshotValue *snapshot = kept->snapshot;

	keep_snapshot(&snapshot, window->snapshot);
	*kept = *window;
	kept->snapshot = snapshot;
}

/* Replaces a kept snapshot by a copy that outlives the transaction. */
static void
keep_snapshot(SnapshotValue **kept, const SnapshotValue *snapshot)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	SnapshotValue *copy = snapshot_value_copy(snapshot);

	MemoryContextSwitchTo(caller);
	if (*kept)
		pfree(*kept);
	*kept = copy;
}

/*
 * Writes the next window, and makes it the newest. Needs an open transaction.
 */
static void
append_window(Position *position, const SnapshotValue *snapshot, Opening *opening)
{
	Rings		rings;
	bool		is_empty = opening->rows.n == 0 && opening->receipts == 0;
	bool		all_propagated = position->propagated == position->opened.number;
	Window		window = {
		.number = opening->number,
		.tx = GetTopFullTransactionId(),
		.snapshot = (SnapshotValue *) snapshot,
		.opened_at = GetCurrentTimestamp(),
		.published = is_empty ? opening->number : position->published,
		.propagated = is_empty && all_propagated ? opening->number : position->propagated,
		.messages = position->opened.messages + opening->rows.n,
		.oldest = opening->oldest
	};

	unique_id_random(&window.uuid);
	rings_read(&rings);
	window_append(&window, rings.ring[RING_LOG].current);

	keep_window(&position->opened, &window);
	keep_snapshot(&position->looked, snapshot);
	position->opened_at = clock_now();
	opening->uuid = window.uuid;
}

/* Collects what was committed since the last look. */
static void
look(const Position *position, const SnapshotValue *now, Opening *opening)
{
	opening->rows.first_window = opening->number % RUN_WINDOWS;
	log_scan(GetActiveSnapshot(), position->looked, now, collect_row, opening);
	window_rows_sort(&opening->rows);
}

/* A LogReader: adds a message to the rows, or counts a receipt. */
static bool
collect_row(TupleTableSlot *row, int segment, void *arg)
{
	Opening    *opening = arg;
	TimestampTz at = log_row_at(row);

	if (opening->oldest == 0 || at < opening->oldest)
		opening->oldest = at;
	if (log_row_is_receipt(row))
		opening->receipts++;
	else
		window_rows_add(&opening->rows, &(LogRow) {
			.id = log_row_id(row), .tid = row->tts_tid, .segment = segment, .window = opening->rows.first_window
		});
	return true;
}

/*
 * Keeps the rows of a window that was opened if it is sent next, or is the next
 * one of the run; otherwise they are read again later.
 */
static void
keep_rows(Position *position, Opening *opening)
{
	Run		   *run = &position->run;
	WindowPart	part = {.number = opening->number, .uuid = opening->uuid, .messages = opening->rows.n};

	if (position->sent + 1 == part.number)
		run_clear(run);
	else if (run->last + 1 != part.number || opening->rows.file != NULL ||
			 !run_has_room(run, position->sent, 1, part.messages))
	{
		window_rows_free(&opening->rows);
		return;
	}
	run_append(run, &opening->rows, &part, 1);
}
