/*
 * window_opening.c
 *		Opens windows: looks for what was committed, and writes the next window.
 *
 * Called by dispatcher.c, and by closing_window.c, propagation.c, shutdown.c and
 * copied_messages.c for a window without messages. A window is opened in one
 * transaction: take a snapshot S; if messages were committed since the last
 * snapshot, insert {number, uuid, S} and commit synchronously. That commit makes
 * the window immutable, and flushes the WAL of every transaction visible in S
 * before any of its messages is sent. The window's own transaction id is taken
 * after S, so that after a crash no id below xmax(S) is assigned again.
 *
 *	 died before the commit		the next look finds the same messages
 *	 after it, before sending	the row is there, the fence names an earlier one
 *	 between batches				the fence names this window and the last message
 *	 after the last batch		as above; nothing is left of the window
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/tuptable.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/window/window_opening.h"
#include "src/kill_point.h"
#include "src/log/log.h"
#include "src/ring/ring.h"
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
	bool		is_closing;		/* all up to its end is published */
	SortedRows	rows;
} Opening;

static void append_window(Position *position, const SnapshotValue *snapshot, Opening *opening);
static void look(const Position *position, const SnapshotValue *now, Opening *opening);
static bool collect_row(TupleTableSlot *row, int segment, void *arg);
static void keep_rows(Position *position, Opening *opening);

/*
 * Opens the next window if messages were committed since the last look. Returns
 * whether there is a new window.
 */
bool
window_opening_next(Position *position)
{
	SnapshotValue *now;
	Opening		opening = {.number = position->opened.number + 1};

	if (!transaction_begin("looking for messages"))
		return false;
	now = snapshot_value_now();
	look(position, now, &opening);
	if (opening.rows.n == 0 && opening.receipts == 0)
	{
		position_note_looked(position, now);
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

/* Opens a window without messages that says that all up to its end is published. Needs an open transaction. */
void
window_opening_empty(Position *position, const SnapshotValue *snapshot)
{
	append_window(position, snapshot, &(Opening) {.number = position->opened.number + 1, .is_closing = true});
}

/*
 * Opens a window without messages that notes on disk how far publishing and propagation
 * have got, or have gone back to. It is sent like any other one. Returns false if the
 * extension is being dropped.
 */
bool
window_opening_note(Position *position)
{
	if (!transaction_begin("noting the position"))
		return false;
	append_window(position, position->looked, &(Opening) {.number = position->opened.number + 1});
	transaction_commit();
	return true;
}

/*
 * Opens the closing window: it is empty, and notes on disk that everything up to
 * its snapshot is published. Must be called only if that is so. Returns false if
 * the extension is being dropped.
 */
bool
window_opening_closing(Position *position)
{
	if (!transaction_begin("noting the position"))
		return false;
	window_opening_empty(position, position->looked);
	KILL_POINT("closing_written");
	transaction_commit();
	KILL_POINT("closing_committed");
	position_note_all_published(position);
	return true;
}

/*
 * The same when we stop publishing: does not wait for a lock nor for a standby,
 * and so may do nothing. The fence stays where it is: it may name a window
 * older than this one, but none that a standby lacks. It goes there with the next
 * connection, which waits for the standby first.
 */
void
window_opening_closing_at_once(Position *position)
{
	Rings		rings;

	if (!position_has_sent_all(position) ||
		(position->opened.published >= position->published && position->opened.propagated <= position->propagated) ||
		!transaction_begin("noting the position"))
		return;
	rings_read(&rings);
	if (ConditionalLockRelationOid(relations_enter()->segments[RING_LOG][rings.ring[RING_LOG].current].window, RowExclusiveLock))
		window_opening_empty(position, position->looked);
	transaction_commit_at_once();
	position_note_all_published(position);
}

/*
 * Writes the next window, and makes it the newest. Needs an open transaction.
 */
static void
append_window(Position *position, const SnapshotValue *snapshot, Opening *opening)
{
	bool		all_propagated = position->propagated == position->opened.number;
	Window		window = {
		.number = opening->number,
		.tx = GetTopFullTransactionId(),
		.snapshot = (SnapshotValue *) snapshot,
		.opened_at = GetCurrentTimestamp(),
		.published = opening->is_closing ? opening->number : position->published,
		.propagated = opening->is_closing && all_propagated ? opening->number : position->propagated,
		.targets = position->targets,
		.messages = position->opened.messages + opening->rows.n,
		.oldest = opening->oldest
	};

	unique_id_random(&window.uuid);
	window_row_append(&window, rings_now()->ring[RING_LOG].current);

	position_note_opened(position, &window);
	opening->uuid = window.uuid;
}

/* Collects what was committed since the last look. */
static void
look(const Position *position, const SnapshotValue *now, Opening *opening)
{
	opening->rows.first_window = opening->number % RUN_WINDOWS;
	log_scan(InvalidSnapshot, position->looked, now, collect_row, opening);
	sorted_rows_sort(&opening->rows);
}

/*
 * A LogReader: adds a message to the rows, or counts a receipt. The last column that is
 * needed is read first, and those before it with it.
 */
static bool
collect_row(TupleTableSlot *row, int segment, void *arg)
{
	Opening    *opening = arg;
	bool		is_receipt = log_row_is_receipt(row);
	TimestampTz at = log_row_at(row);

	if (opening->oldest == 0 || at < opening->oldest)
		opening->oldest = at;
	if (is_receipt)
		opening->receipts++;
	else
		sorted_rows_add(&opening->rows, &(LogRow) {
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
		sorted_rows_free(&opening->rows);
		return;
	}
	run_append(run, &opening->rows, &part, 1);
}
