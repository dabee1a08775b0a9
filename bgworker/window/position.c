/*
 * position.c
 *		How far windows have been opened, sent, published and propagated.
 *
 * Kept by the dispatcher, read from the tables when it starts. Windows are opened
 * by window_opening.c.
 *
 * The fence in Redis tells how far publishing has got. `published` in the rows
 * of the window tables is what was known when they were written: it never runs
 * ahead, so expiry and the views can rely on it. The same holds for
 * `propagated`, which tells how far propagation.c got with the receipts of what
 * is published.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/process/report.h"
#include "bgworker/window/position.h"
#include "src/clock.h"

static void keep_window(Window *kept, const Window *window);
static void keep_snapshot(SnapshotValue **kept, const SnapshotValue *snapshot);

/*
 * Reads from the tables how far publishing had got. Nothing from before the end
 * of `first_window` is ever sent again. Needs an open transaction.
 */
void
position_load(Position *position, int64 first_window)
{
	Window		newest;

	if (!window_row_newest(&newest))
		elog(ERROR, "no window is left");
	keep_window(&position->opened, &newest);
	keep_snapshot(&position->looked, newest.snapshot);

	/*
	 * Windows that have been removed had been published, whatever the row
	 * says.
	 */
	position->published = Max(newest.published, window_row_oldest_number());
	position->sent = position->published;
	position->propagated = Min(Max(newest.propagated, window_row_oldest_number()), position->published);
	position->targets = newest.targets;
	position->marked = newest.number;
	position->touched = (WindowPlace) {.window = newest.number, .id = PG_INT64_MAX};
	position->first_window = first_window;
	position->resume_after = 0;
	position->sent_before = 0;
	position->left_out = 0;
	run_clear(&position->run);
	report_published(position->published, position->propagated);
}

/* Notes that the receipts of all windows up to this one have been propagated. */
void
position_propagate(Position *position, int64 upto)
{
	position->propagated = upto;
	position_note_published(position);
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

/*
 * Notes that a message of a window was left out: from now on neither that window nor one
 * behind it counts as published, until its lane can be written to (resume_position()).
 */
void
position_leave_out(Position *position, int64 window)
{
	if (position->left_out == 0 || window < position->left_out)
		position->left_out = window;
}

/*
 * Notes that all rows of the run before that one are in Redis, or deferred, or were left
 * out. Returns whether another window counts as sent.
 */
bool
position_advance(Position *position, int64 row)
{
	int64		sent = run_sent_upto(&position->run, position->sent, row);
	int64		published = position_published(position, sent);

	position->run.done = row;
	if (sent == position->sent)
		return false;
	position->told = 0;			/* what is found next is news */
	position->sent = sent;
	position->resume_after = 0;
	if (position->left_out > 0)
		report_sent(sent);
	if (published > position->published)
	{
		position->published = published;
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
	return window_row_at(position->propagated, &window) &&
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

/* Notes that a window was opened: it is the newest. Its snapshot is copied. */
void
position_note_opened(Position *position, const Window *window)
{
	keep_window(&position->opened, window);
	keep_snapshot(&position->looked, window->snapshot);
	position->opened_at = clock_now();
}

/* Notes what was seen at the last look for messages. The snapshot is copied. */
void
position_note_looked(Position *position, const SnapshotValue *snapshot)
{
	keep_snapshot(&position->looked, snapshot);
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
