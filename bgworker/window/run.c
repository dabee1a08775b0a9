/*
 * run.c
 *		The windows that are sent one after the other, and the places of their messages.
 *
 * Called by window_opening.c and backlog.c, which add windows, and by all that read
 * their rows, page.c above all. A batch has room for the messages of many small windows, so all
 * that follow each other are sent as one: a run. Its rows are in the order of their windows, and
 * those of a window in the order of ids. It grows at its end while its first
 * windows are being sent. If a window is too large for
 * memory, and so is kept in a file (sorted_rows.c), its run does not grow.
 *
 * Nothing of a run is on disk: after a crash, or when the link has failed, it is
 * collected again from the windows and the log.
 */
#include "postgres.h"

#include "utils/snapmgr.h"

#include "bgworker/window/run.h"
#include "src/log/log.h"
#include "src/ring/ring.h"

StaticAssertDecl(MAX_SEGMENTS <= 1 << LOG_ROW_SEGMENT_BITS, "LogRow.segment has room for all segments");

/* Where the rows of some windows are collected. */
typedef struct Collection
{
	SortedRows *rows;
	const Window *windows;
	int			nwindows;
	WindowPart *parts;
	FullTransactionId tx;		/* of the row before */
	int			window;			/* that it is in */
} Collection;

static bool collect_row(TupleTableSlot *row, int segment, void *arg);
static int	window_of(const Collection *collection, FullTransactionId tx);
static int64 number_of(const Run *run, const LogRow *row);

/* Makes a run empty. */
void
run_clear(Run *run)
{
	sorted_rows_free(&run->rows);
	run->last = 0;
	run->done = 0;
}

/*
 * Check whether windows with so many messages can be appended. Windows
 * up to number `sent` are no longer needed. An empty run has room for any window.
 */
bool
run_has_room(const Run *run, int64 sent, int64 windows, int64 messages)
{
	return run->last == 0 ||
		(run->last - sent + windows < RUN_WINDOWS && sorted_rows_have_room(&run->rows, run->done, messages));
}

/* Appends windows that follow the last one, with their sorted rows, which are taken over. */
void
run_append(Run *run, SortedRows *rows, const WindowPart *parts, int nparts)
{
	int64		end = run->rows.n;

	Assert(run->last == 0 || run->last + 1 == parts[0].number);
	if (run->last == 0)
	{
		end = 0;
		run->rows = *rows;
	}
	else
		sorted_rows_join(&run->rows, run->done, rows);
	memset(rows, 0, sizeof(*rows));

	for (int i = 0; i < nparts; i++)
	{
		RunWindow  *window = &run->windows[parts[i].number % RUN_WINDOWS];

		end += parts[i].messages;
		window->uuid = parts[i].uuid;
		window->end = end;
		run->last = parts[i].number;
	}
}

/*
 * Collects the rows of windows that follow each other, the first of which begins
 * where `before` ends, and counts those of each window. Needs an open
 * transaction.
 */
void
run_collect(SortedRows *rows, const Window *before, const Window *windows, int nwindows, WindowPart *parts)
{
	Collection	collection = {.rows = rows, .windows = windows, .nwindows = nwindows, .parts = parts};

	for (int i = 0; i < nwindows; i++)
		parts[i] = (WindowPart) {.number = windows[i].number, .uuid = windows[i].uuid};
	rows->first_window = windows[0].number % RUN_WINDOWS;
	log_scan(InvalidSnapshot, before->snapshot, windows[nwindows - 1].snapshot, collect_row, &collection);
	sorted_rows_sort(rows);
}

/* Returns a window of the run; the one just before the first row that is still needed may be asked for, too. */
const RunWindow *
run_window(const Run *run, int64 number)
{
	return &run->windows[number % RUN_WINDOWS];
}

/* Returns a row of the run; it is valid until the next call. */
const LogRow *
run_row(Run *run, int64 row)
{
	return sorted_rows_get(&run->rows, row);
}

/* Returns which message of which window a row is. */
WindowPlace
run_place(Run *run, int64 row)
{
	return run_place_of(run, run_row(run, row));
}

/* The same for a row that has been returned. */
WindowPlace
run_place_of(const Run *run, const LogRow *row)
{
	return (WindowPlace) {.window = number_of(run, row), .id = row->id};
}

/* Check whether a row is the last one of its window. */
bool
run_window_ends(Run *run, int64 row)
{
	return run_window(run, run_row(run, row)->window)->end == row + 1;
}

/* Returns the first row behind a place, of those that are still needed; the number of rows if there is none. */
int64
run_first_after(Run *run, WindowPlace place)
{
	int64		low = run->done;
	int64		high = run->rows.n;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		if (place_precedes(place, run_place(run, middle)))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * Returns up to which window all is sent when all rows before that one are, and
 * all windows up to `sent`.
 */
int64
run_sent_upto(const Run *run, int64 sent, int64 row)
{
	while (sent < run->last && run_window(run, sent + 1)->end <= row)
		sent++;
	return sent;
}

/* A LogReader: adds a message to the rows of its window. */
static bool
collect_row(TupleTableSlot *row, int segment, void *arg)
{
	Collection *collection = arg;
	FullTransactionId tx;

	if (log_row_is_receipt(row))
		return true;
	tx = log_row_tx(row);
	if (!FullTransactionIdEquals(tx, collection->tx))
	{
		collection->window = window_of(collection, tx);
		collection->tx = tx;
	}
	collection->parts[collection->window].messages++;
	sorted_rows_add(collection->rows, &(LogRow) {
		.id = log_row_id(row), .tid = row->tts_tid, .segment = segment,
			.window = collection->windows[collection->window].number % RUN_WINDOWS
	});
	return true;
}

/* Returns in which window a transaction is: the first one whose snapshot sees it. The last one does. */
static int
window_of(const Collection *collection, FullTransactionId tx)
{
	int			low = 0;
	int			high = collection->nwindows - 1;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (snapshot_value_sees(collection->windows[middle].snapshot, tx))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Returns the number of the window of a row. It is one of the last RUN_WINDOWS. */
static int64
number_of(const Run *run, const LogRow *row)
{
	return run->last - (run->last - row->window) % RUN_WINDOWS;
}
