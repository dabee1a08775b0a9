/*
 * backlog.c
 *		Which windows are sent next, read from their tables.
 *
 * Called by publisher.c. The window that was opened last is at hand if all
 * before it are sent (window_opening.c). All others are read here, with the rows
 * of their messages, and are made a run (run.c): the next one however large it
 * is, and those behind it while they have few messages, so that the batches
 * under way keep Redis busy meanwhile.
 */
#include "postgres.h"

#include "bgworker/process/transaction.h"
#include "bgworker/window/backlog.h"
#include "bgworker/window/loss_note.h"
#include "src/kill_point.h"

/*
 * How much is added to a run at once, apart from the next window. While nothing is under
 * way Redis waits for it, so the first series has only two batches of the usual size.
 */
#define SERIES_WINDOWS	256
#define SERIES_MESSAGES	2048
#define FIRST_MESSAGES	1000

/* Windows that follow each other. */
typedef struct Series
{
	Window		before;			/* the first one begins where it ends */
	Window		windows[SERIES_WINDOWS];
	WindowPart	parts[SERIES_WINDOWS];	/* what was found of them */
	int			n;
} Series;

static void read_series(const Position *position, int64 after, Series *series);
static void note_missing(Position *position, const Series *series);
static void collect(Position *position, Series *series);
static int64 messages_of(const Series *series, int window);
static void note_expired(Position *position, const Series *series);

/*
 * Returns the windows to be sent next, at least one; NULL if the extension is
 * being dropped. They are kept until position_end_run().
 */
Run *
backlog_next_run(Position *position)
{
	if (position->run.last > position->sent)
		return &position->run;
	run_clear(&position->run);
	return backlog_extend_run(position) ? &position->run : NULL;
}

/* Check whether there are windows that the run can grow by. */
bool
backlog_may_extend_run(const Position *position)
{
	return position->run.last < position->opened.number && run_has_room(&position->run, position->sent, 1, 1);
}

/*
 * Adds the next windows to the run, as many as there is room for. If there is
 * none for the first of them, it is sent with the next run. Returns false if
 * the extension is being dropped.
 */
bool
backlog_extend_run(Position *position)
{
	Run		   *run = &position->run;
	Series		series;

	if (!transaction_begin("reading windows"))
		return false;
	read_series(position, run->last > 0 ? run->last : position->sent, &series);
	if (run->last == 0)
	{
		note_missing(position, &series);
		collect(position, &series);
	}
	else if (run->last + 1 == series.windows[0].number)
	{
		while (series.n > 0 &&
			   !run_has_room(run, position->sent, series.n, series.windows[series.n - 1].messages - series.before.messages))
			series.n--;
		if (series.n > 0)
			collect(position, &series);
	}
	transaction_commit();
	KILL_POINT("window_read_again");
	return true;
}

/* Reads the windows after that one. There is always one. */
static void
read_series(const Position *position, int64 after, Series *series)
{
	Window	   *windows = series->windows;
	int64		messages = position->run.last == 0 ? FIRST_MESSAGES : SERIES_MESSAGES;

	series->n = 1;
	if (!window_row_after(after, &windows[0]))
		windows[0] = position->opened;
	if (!window_row_at(after, &series->before))
		series->before = windows[0];
	if (windows[0].number < position->opened.number)
		series->n += window_row_series(windows[0].number + 1,
									   Min(SERIES_WINDOWS - 1, position->opened.number - windows[0].number),
									   series->before.messages + messages, windows + 1);
}

/* Notes if windows before the first one are missing, and skips their numbers. */
static void
note_missing(Position *position, const Series *series)
{
	const Window *first = &series->windows[0];

	if (series->before.number != position->sent || first->number != position->sent + 1)
		loss_note_missing(&series->before, first, position_is_news(position, NEWS_MISSING));
	position->sent = first->number - 1;
}

/* Adds windows to the run, with the rows of their messages. */
static void
collect(Position *position, Series *series)
{
	SortedRows	rows = {0};

	run_collect(&rows, &series->before, series->windows, series->n, series->parts);
	note_expired(position, series);
	if (position->run.last == 0 || rows.file == NULL)
		run_append(&position->run, &rows, series->parts, series->n);
	else
		sorted_rows_free(&rows);
}

/* Returns how many messages a window had when it was opened. */
static int64
messages_of(const Series *series, int window)
{
	return series->windows[window].messages -
		(window > 0 ? series->windows[window - 1].messages : series->before.messages);
}

/* Notes the last window that has lost messages since it was opened, if there is one. */
static void
note_expired(Position *position, const Series *series)
{
	int			last = series->n - 1;

	while (last >= 0 && series->parts[last].messages >= messages_of(series, last))
		last--;
	if (last >= 0)
		loss_note_expired(&series->windows[last], position_is_news(position, NEWS_EXPIRED));
}
