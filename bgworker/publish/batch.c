/*
 * batch.c
 *		Reads a page of messages and writes the command that publishes it.
 *
 * Called by publisher.c. A batch is one run of the script (publish.lua). It is
 * read in a transaction of its own, which has ended before anything is sent.
 * Messages that are deferred meanwhile are on disk by then, because the fence
 * of the batch passes them. command.c writes the command.
 *
 * A message that cannot be made part of a command (too large, damaged) is
 * deferred as if it had been refused. An ERROR rolls the page back. The page is
 * made again up to the message that raised the error; if that message is the
 * first of a page, it alone caused the error.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/tally.h"
#include "bgworker/publish/batch.h"
#include "bgworker/publish/row_reader.h"
#include "bgworker/transaction.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/log/deferred.h"

#define BATCH_BYTES		(1024 * 1024)	/* a batch ends when it has that many */

/* What a page is read with. */
typedef struct PageReader
{
	RowReader	reader;
	DeferredGap gap;			/* where no message has been deferred before */
	size_t		bytes;			/* of the bodies and headers looked at */
	int64		window;			/* that the last message taken is in; 0 = none
								 * is taken */
} PageReader;

/* The row at which making a page failed, and why. */
typedef struct Failure
{
	int64		row;
	char		error[256];
} Failure;

static MemoryContext page_context;	/* reset for each batch */

static bool try_page(Batch *batch, Run *run, int64 first, int64 end, WindowPlace touched, Failure *failure);
static void make_page(Batch *batch, Run *run, int64 first, int64 end, WindowPlace touched, int64 *row);
static bool try_defer(Run *run, const int64 *rows, int n, const char *error, Failure *failure);
static void defer_row(PageReader *page, const LogRow *row, const char *error);
static bool defer_unreadable(Run *run, const Failure *failure);
static bool defer_first(Batch *batch, Run *run, const Failure *failure);
static bool take_row(PageReader *page, Run *run, int64 row, WindowPlace touched, bool *taken);
static void enter_window(PageReader *page, Run *run, int64 row);
static TupleTableSlot *fetch_message(PageReader *page, const LogRow *row);

/* Prepares for use; called once, when the dispatcher starts. */
void
batch_init(void)
{
	page_context = AllocSetContextCreate(TopMemoryContext, "outbox page", ALLOCSET_DEFAULT_SIZES);
	command_init();
}

/*
 * Makes the batch of the run that begins with row `first` and builds on
 * the fence of the lane. Rows behind `touched` are looked at for the first time; some of those
 * up to it may have been deferred already. The batch may be empty. Returns false
 * if the extension is being dropped.
 */
bool
batch_make(Batch *batch, const ScriptCall *call, const Lane *lane, Run *run,
		   int64 first, WindowPlace touched)
{
	int64		end = run->rows.n;
	Failure		failure;

	for (;;)
	{
		if (!transaction_begin("reading messages"))
			return false;
		strlcpy(batch->builds_on, lane->fence, sizeof(batch->builds_on));
		command_begin_page(call, lane);
		if (try_page(batch, run, first, end, touched, &failure))
			break;
		if (!deferral_reload())
			return false;
		if (failure.row == first)
			return defer_first(batch, run, &failure);
		end = failure.row;
	}
	batch->bytes = command_page_bytes();
	batch_fence_after(batch, lane, run, batch->n, batch->fence);
	KILL_POINT("page_read");
	transaction_commit();
	command_end_page(batch->fence);
	MemoryContextReset(page_context);
	return true;
}

/* Makes a page. Returns false if a message could not be taken; the transaction is then rolled back. */
static bool
try_page(Batch *batch, Run *run, int64 first, int64 end, WindowPlace touched, Failure *failure)
{
	MemoryContext caller = MemoryContextSwitchTo(page_context);
	volatile bool made = true;

	PG_TRY();
	{
		make_page(batch, run, first, end, touched, &failure->row);
		MemoryContextSwitchTo(caller);
	}
	PG_CATCH();
	{
		transaction_abort_for_message(failure->error, sizeof(failure->error));
		MemoryContextReset(page_context);
		made = false;
	}
	PG_END_TRY();
	return made;
}

/* Adds rows to the batch until it is full. *row is the one being looked at. */
static void
make_page(Batch *batch, Run *run, int64 first, int64 end, WindowPlace touched, int64 *row)
{
	PageReader	page = {0};
	bool		has_ended = false;	/* where partitions change */

	batch->n = 0;
	batch->settled = -1;
	for (*row = first; *row < end && !has_ended && *row - first < batch->reach &&
		 batch->n < batch->size && page.bytes < BATCH_BYTES && command_page_bytes() < BATCH_BYTES; (*row)++)
	{
		bool		taken;

		if (!take_row(&page, run, *row, touched, &taken))
			break;
		if (taken)
			batch->rows[batch->n++] = *row;
		if (run_window_ends(run, *row))
		{
			batch->settled = tally_waiting();
			has_ended = destination_have_new_partitions();
		}
	}
	batch->next = *row;
	deferred_end_append();
	row_reader_close(&page.reader);
}

/*
 * Computes the value of the fence when the first n messages of a batch have been
 * added: it names the last of them, and its window.
 */
void
batch_fence_after(const Batch *batch, const Lane *lane, Run *run, int n, char *fence)
{
	WindowPlace last;

	if (n == 0)
	{
		memmove(fence, batch->builds_on, FENCE_BYTES);
		return;
	}
	last = run_place(run, batch->rows[n - 1]);
	lane_write_fence(lane, &(Fence) {.number = last.window, .uuid = run_window(run, last.window)->uuid, .last_id = last.id}, fence);
}

/*
 * Defers rows that Redis refused, all for the same reason. When this returns,
 * all of them or none are on disk. Those that wait behind another message of
 * their destination have not been tried. Returns false if the extension is
 * being dropped.
 */
bool
batch_defer_rows(Run *run, const int64 *rows, int n, const char *error)
{
	Failure		failure;

	for (;;)
	{
		if (!transaction_begin("deferring messages"))
			return false;
		if (try_defer(run, rows, n, error, &failure))
			break;
		if (!deferral_reload() || !defer_unreadable(run, &failure))
			return false;
	}
	KILL_POINT("refusal_written");
	transaction_commit();
	KILL_POINT("refusal_committed");
	return true;
}

/* Defers rows. Returns false if a message could not be read; the transaction is then rolled back. */
static bool
try_defer(Run *run, const int64 *rows, int n, const char *error, Failure *failure)
{
	volatile bool done = true;

	PG_TRY();
	{
		PageReader	page = {0};

		for (int i = 0; i < n; i++)
		{
			failure->row = rows[i];
			defer_row(&page, run_row(run, rows[i]), error);
		}
		deferred_end_append();
		row_reader_close(&page.reader);
	}
	PG_CATCH();
	{
		transaction_abort_for_message(failure->error, sizeof(failure->error));
		done = false;
	}
	PG_END_TRY();
	return done;
}

/* Defers one of the rows that were refused, unless it has been deferred already. */
static void
defer_row(PageReader *page, const LogRow *row, const char *error)
{
	TupleTableSlot *found = fetch_message(page, row);
	Message		message;

	log_row_origin(found, &message);
	if (deferral_holds(&message, &page->gap))
		return;
	log_row_message(found, &message);
	page->gap = (DeferredGap) {0};
	if (!deferral_try_defer(&message, row->segment))
		deferral_defer_refused(&message, row->segment, error);
}

/*
 * Defers a message without its body, which cannot be read now. Returns false if
 * the extension is being dropped.
 */
static bool
defer_unreadable(Run *run, const Failure *failure)
{
	const LogRow *row = run_row(run, failure->row);
	PageReader	page = {0};
	Message		message;

	if (!transaction_begin("deferring a message that cannot be read"))
		return false;
	log_row_envelope(fetch_message(&page, row), &message);
	deferral_defer_unreadable(&message, row->segment, failure->error);
	deferred_end_append();
	row_reader_close(&page.reader);
	transaction_commit();
	return true;
}

/*
 * Defers the first message of a page, which cannot be made part of a command;
 * the batch is empty and ends behind it.
 */
static bool
defer_first(Batch *batch, Run *run, const Failure *failure)
{
	command_clear_page();
	batch->bytes = 0;
	batch->n = 0;
	batch->settled = -1;
	batch->next = failure->row + 1;
	strlcpy(batch->fence, batch->builds_on, sizeof(batch->fence));
	return batch_defer_rows(run, &failure->row, 1, failure->error);
}

/*
 * Adds a message to the command, or defers it. Returns false if it is too large
 * to be sent together with others; the batch ends before it.
 */
static bool
take_row(PageReader *page, Run *run, int64 row, WindowPlace touched, bool *taken)
{
	const LogRow *place = run_row(run, row);
	TupleTableSlot *found = fetch_message(page, place);
	Message		message;
	size_t		size;

	*taken = false;
	log_row_origin(found, &message);
	if (!place_precedes(touched, run_place(run, row)) && deferral_holds(&message, &page->gap))
		return true;
	log_row_message(found, &message);
	size = toast_raw_datum_size(PointerGetDatum(message.body)) +
		(message.headers ? VARSIZE_ANY(message.headers) : 0);
	if (page->bytes > 0 && size > BATCH_BYTES)
		return false;
	page->bytes += size;
	if (deferral_try_defer(&message, place->segment))
	{
		page->gap = (DeferredGap) {0};
		return true;
	}
	enter_window(page, run, row);
	command_add_message(&message);
	*taken = true;
	return true;
}

/* Tells the command if a message is in another window than the one before. */
static void
enter_window(PageReader *page, Run *run, int64 row)
{
	int64		window = run_place(run, row).window;

	if (window == page->window)
		return;
	page->window = window;
	command_begin_window(window, &run_window(run, window)->uuid);
}

/*
 * Fetches a row of the log. If it is no longer there, because the table was
 * rewritten (VACUUM FULL), the error ends this process: no message is blamed for
 * it, and the next dispatcher collects the rows again.
 */
static TupleTableSlot *
fetch_message(PageReader *page, const LogRow *row)
{
	TupleTableSlot *found = row_reader_fetch(&page->reader, row);

	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg_internal("message %lld is no longer at its place in log segment %d", (long long) row->id, row->segment)));
	return found;
}
