/*
 * position.c
 *		Opens windows, tells which one is next, and how far publishing has got.
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

#include "bgworker/publish/loss_note.h"
#include "bgworker/publish/position.h"
#include "bgworker/report.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/log/log.h"
#include "src/store/store.h"
#include "src/table/relations.h"
#include "src/unique_id.h"

static void keep_window(Window *kept, const Window *window);
static void keep_snapshot(SnapshotValue **kept, const SnapshotValue *snapshot);
static void collect_window(WindowRows *rows, const SnapshotValue *after, const SnapshotValue *upto);
static bool collect_row(TupleTableSlot *row, int segment, void *arg);

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
	position->touched = newest.number;
	position->touched_upto = PG_INT64_MAX;
	position->first_window = first_window;
	position->resume_after = 0;
	position->rows.number = -1;
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
	WindowRows	rows = {0};

	if (!transaction_begin("looking for messages"))
		return false;
	now = snapshot_value_now();
	collect_window(&rows, position->looked, now);
	if (rows.n == 0 && rows.receipts == 0)
	{
		keep_snapshot(&position->looked, now);
		transaction_commit();
		return false;
	}

	KILL_POINT("messages_found");
	position_append_window(position, now, &rows);
	KILL_POINT("window_written");
	transaction_commit();
	KILL_POINT("window_committed");
	if (rows.receipts > 0)
		position->marked = position->opened.number;

	/*
	 * The rows are kept only if this window is sent next; otherwise they are
	 * read again later.
	 */
	if (position->sent + 1 == position->opened.number)
	{
		window_rows_free(&position->rows);
		position->rows = rows;
	}
	else
		window_rows_free(&rows);
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
	WindowRows	none = {0};

	if (!transaction_begin("noting the position"))
		return false;
	position_append_window(position, position->looked, &none);
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
	WindowRows	none = {0};
	Rings		rings;

	if (!position_is_caught_up(position) || position->opened.published >= position->published ||
		!transaction_begin("noting the position"))
		return;
	rings_read(&rings);
	if (ConditionalLockRelationOid(relations_enter()->segments[RING_LOG][rings.ring[RING_LOG].current].window, RowExclusiveLock))
		position_append_window(position, position->looked, &none);
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

/* Notes that all messages of the window whose rows were collected are in Redis. */
void
position_advance(Position *position)
{
	position->told = 0;			/* what is found next is news */
	position->sent = position->rows.number;
	position->resume_after = 0;
	window_rows_free(&position->rows);
	if (position->sent > position->published)
	{
		position->published = position->sent;
		position_note_published(position);
	}
}

/*
 * Returns the messages of the window to be sent next; NULL if the extension is
 * being dropped. They are collected once and kept until position_advance().
 */
WindowRows *
position_next_rows(Position *position)
{
	Window		before;
	Window		next;

	if (position->rows.number > position->sent)
		return &position->rows;
	if (!transaction_begin("reading a window"))
		return NULL;
	if (!window_after(position->sent, &next))
		next = position->opened;
	if (!window_at(position->sent, &before))
		before = next;
	if (before.number != position->sent || next.number != position->sent + 1)
		loss_note_missing(&before, &next, position_is_news(position, NEWS_MISSING));
	window_rows_free(&position->rows);
	collect_window(&position->rows, before.snapshot, next.snapshot);
	if (position->rows.n < next.messages - before.messages)
		loss_note_expired(&next, position_is_news(position, NEWS_EXPIRED));
	position->rows.number = next.number;
	position->rows.uuid = next.uuid;
	transaction_commit();
	KILL_POINT("window_read_again");
	return &position->rows;
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

/*
 * Writes the next window, which holds `rows`, and makes it the newest. Needs
 * an open transaction.
 */
void
position_append_window(Position *position, const SnapshotValue *snapshot, WindowRows *rows)
{
	Rings		rings;
	bool		is_empty = rows->n == 0 && rows->receipts == 0;
	bool		all_propagated = position->propagated == position->opened.number;
	Window		window = {
		.number = position->opened.number + 1,
		.tx = GetTopFullTransactionId(),
		.snapshot = (SnapshotValue *) snapshot,
		.opened_at = GetCurrentTimestamp(),
		.published = is_empty ? position->opened.number + 1 : position->published,
		.propagated = is_empty && all_propagated ? position->opened.number + 1 : position->propagated,
		.messages = position->opened.messages + rows->n,
		.oldest = rows->oldest
	};

	unique_id_random(&window.uuid);
	rings_read(&rings);
	window_append(&window, rings.ring[RING_LOG].current);

	keep_window(&position->opened, &window);
	keep_snapshot(&position->looked, snapshot);
	position->opened_at = clock_now();
	rows->number = window.number;
	rows->uuid = window.uuid;
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
 * Collects the messages that `upto` sees and `after` does not, in the order of
 * their ids.
 */
static void
collect_window(WindowRows *rows, const SnapshotValue *after, const SnapshotValue *upto)
{
	log_scan(GetActiveSnapshot(), after, upto, collect_row, rows);
	window_rows_sort(rows);
}

/* A LogReader: adds a message to the rows, or counts a receipt. */
static bool
collect_row(TupleTableSlot *row, int segment, void *arg)
{
	WindowRows *rows = arg;
	TimestampTz at = log_row_at(row);

	if (rows->oldest == 0 || at < rows->oldest)
		rows->oldest = at;
	if (log_row_is_receipt(row))
		rows->receipts++;
	else
		window_rows_add(rows, &(LogRow) {.id = log_row_id(row), .tid = row->tts_tid, .segment = segment});
	return true;
}
