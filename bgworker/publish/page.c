/*
 * page.c
 *		Reads a page of messages and makes the batches that publish them.
 *
 * Called by publisher.c. A page has a batch for each lane that it has messages for
 * (batch.c). It is read in a transaction of its own, which has ended before anything
 * is sent. Messages that are deferred meanwhile are on disk by then, because the
 * fences of the batches pass them. A message that the fence of its lane covers
 * already is skipped. One whose lane is blocked is left out, which the page notes.
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
#include "bgworker/defer/deferred_count.h"
#include "bgworker/defer/tombstones.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/process/bad_message.h"
#include "bgworker/process/report.h"
#include "bgworker/process/transaction.h"
#include "bgworker/publish/page.h"
#include "bgworker/window/row_reader.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/limits.h"
#include "src/log/deferred.h"

#define FEW_COMMANDS	16		/* keep the memory of a large batch for the
								 * next one; a page may have thousands */

/* A page that is being made, and what it is read with. */
typedef struct PageReader
{
	RowReader	reader;
	DeferredGap gap;			/* where no message has been deferred before */
	MessagePage *page;
	const ScriptCall *call;
	PageSize	size;
	WindowPlace touched;		/* rows behind it are looked at for the first
								 * time */
	int64		published;		/* newest window that Redis is known to have */
	size_t		bytes;			/* of the bodies and headers looked at */
	bool		is_full;		/* one of its batches is */
} PageReader;

/* The row at which making a page failed, and why. */
typedef struct Failure
{
	int64		row;
	char		error[256];
} Failure;

static MemoryContext page_context;	/* reset for each page */
static Command **commands;		/* of the batches of the page being made */
static int	ncommands;

static bool try_page(PageReader *page, Run *run, int64 first, int64 end, Failure *failure);
static void make_page(PageReader *page, Run *run, int64 first, int64 end, int64 *row);
static void clear_page(MessagePage *page);
static void complete_page(MessagePage *page, Run *run);
static bool try_defer(Run *run, int64 published, const int64 *rows, int n, const char *error, Failure *failure);
static void defer_row(PageReader *page, const Run *run, const LogRow *row, const char *error);
static void keep_stream(Message *message, const Run *run, const LogRow *row, int64 published);
static bool defer_unreadable(Run *run, int64 published, const Failure *failure);
static bool defer_first(MessagePage *page, Run *run, int64 published, const Failure *failure);
static bool take_row(PageReader *page, Run *run, int64 row);
static void leave_out(PageReader *page, const Lane *lane, int64 window, const text *dest);
static void add_to_batch(PageReader *page, const Run *run, int64 row, int64 window, const Message *message,
						 const Route *route, Lane *lane);
static Batch *batch_of(PageReader *page, Lane *lane);
static Batch *next_batch(MessagePage *page);
static Command *command_of(int batch);

/* Prepares for use; called once, when the dispatcher starts. */
void
page_init(void)
{
	page_context = AllocSetContextCreate(TopMemoryContext, "outbox page", ALLOCSET_DEFAULT_SIZES);
}

/*
 * Makes the page of the run that begins with row `first`; its batches build on the
 * fences of their lanes. Rows behind position->touched are looked at for the first time;
 * some of those up to it may have been deferred already. The page may have no batch.
 * Returns false if the extension is being dropped.
 */
bool
page_make(MessagePage *page, PageSize size, const ScriptCall *call, Run *run, int64 first, const Position *position)
{
	PageReader	reader = {.page = page, .call = call, .size = size, .touched = position->touched, .published = position->published};
	int64		end = run->rows.n;
	Failure		failure;

	for (;;)
	{
		if (!transaction_begin("reading messages"))
			return false;
		if (try_page(&reader, run, first, end, &failure))
			break;
		if (!deferral_reload())
			return false;
		if (failure.row == first)
			return defer_first(page, run, position->published, &failure);
		end = failure.row;
	}
	KILL_POINT("page_read");
	transaction_commit();
	complete_page(page, run);
	MemoryContextReset(page_context);
	return true;
}

/* Makes a page. Returns false if a message could not be taken; the transaction is then rolled back. */
static bool
try_page(PageReader *page, Run *run, int64 first, int64 end, Failure *failure)
{
	MemoryContext caller = MemoryContextSwitchTo(page_context);
	volatile bool made = true;

	PG_TRY();
	{
		make_page(page, run, first, end, &failure->row);
		MemoryContextSwitchTo(caller);
	}
	PG_CATCH();
	{
		bad_message_abort(failure->error, sizeof(failure->error));
		MemoryContextReset(page_context);
		made = false;
	}
	PG_END_TRY();
	return made;
}

/* Adds rows to the page until it is full. *row is the one being looked at. */
static void
make_page(PageReader *page, Run *run, int64 first, int64 end, int64 *row)
{
	bool		has_ended = false;	/* where partitions change */

	clear_page(page->page);
	memset(&page->reader, 0, sizeof(page->reader));
	page->gap = (DeferredGap) {0};
	page->bytes = 0;
	page->is_full = false;
	for (*row = first; *row < end && !has_ended && *row - first < page->size.rows &&
		 !page->is_full && page->bytes < page->size.bytes; (*row)++)
	{
		if (!take_row(page, run, *row))
			break;
		if (run_window_ends(run, *row))
		{
			page->page->settled = deferred_count_waiting();
			has_ended = lanes_await_partitions();
		}
	}
	page->page->next = *row;
	deferred_end_append();
	row_reader_close(&page->reader);
}

/* Empties a page. */
static void
clear_page(MessagePage *page)
{
	page->settled = -1;
	page->last = -1;
	page->left_out = 0;
	page->bytes = 0;
	page->nbatches = 0;
	page->answered = 0;
}

/* Completes the batches of a page. */
static void
complete_page(MessagePage *page, Run *run)
{
	for (int i = 0; i < page->nbatches; i++)
	{
		page->bytes += command_bytes(page->batches[i].command);
		batch_complete(&page->batches[i], run);
	}
}

/*
 * Defers rows that Redis refused, all for the same reason. When this returns,
 * all of them or none are on disk. Those that wait behind another message of
 * their destination have not been tried. `published` is the newest window that Redis is
 * known to have. Returns false if the extension is being dropped.
 */
bool
page_defer_rows(Run *run, int64 published, const int64 *rows, int n, const char *error)
{
	Failure		failure;

	for (;;)
	{
		if (!transaction_begin("deferring messages"))
			return false;
		if (try_defer(run, published, rows, n, error, &failure))
			break;
		if (!deferral_reload() || !defer_unreadable(run, published, &failure))
			return false;
	}
	KILL_POINT("refusal_written");
	transaction_commit();
	KILL_POINT("refusal_committed");
	return true;
}

/* Defers rows. Returns false if a message could not be read; the transaction is then rolled back. */
static bool
try_defer(Run *run, int64 published, const int64 *rows, int n, const char *error, Failure *failure)
{
	volatile bool done = true;

	PG_TRY();
	{
		PageReader	page = {.published = published};

		for (int i = 0; i < n; i++)
		{
			failure->row = rows[i];
			defer_row(&page, run, run_row(run, rows[i]), error);
		}
		deferred_end_append();
		row_reader_close(&page.reader);
	}
	PG_CATCH();
	{
		bad_message_abort(failure->error, sizeof(failure->error));
		done = false;
	}
	PG_END_TRY();
	return done;
}

/* Defers one of the rows that were refused, unless it has been deferred already. */
static void
defer_row(PageReader *page, const Run *run, const LogRow *row, const char *error)
{
	TupleTableSlot *found = row_reader_fetch_message(&page->reader, row);
	Message		message;

	log_row_origin(found, &message);
	if (tombstones_hold(&message, &page->gap))
		return;
	log_row_message(found, &message);
	page->gap = (DeferredGap) {0};
	keep_stream(&message, run, row, page->published);
	if (!deferral_try_defer(&message, row->segment))
		deferral_defer_refused(&message, row->segment, error);
}

/* Has a message that is about to be deferred keep its stream if it must go there again. */
static void
keep_stream(Message *message, const Run *run, const LogRow *row, int64 published)
{
	int64		window = run_place_of(run, row).window;
	Route		route = route_find(message, window);

	route_keep(&route, message, window, published);
}

/*
 * Defers a message without its body, which cannot be read now. Returns false if
 * the extension is being dropped.
 */
static bool
defer_unreadable(Run *run, int64 published, const Failure *failure)
{
	const LogRow *row = run_row(run, failure->row);
	PageReader	page = {0};
	Message		message;

	if (!transaction_begin("deferring a message that cannot be read"))
		return false;
	log_row_envelope(row_reader_fetch_message(&page.reader, row), &message);
	keep_stream(&message, run, row, published);
	deferral_defer_unreadable(&message, row->segment, failure->error);
	deferred_end_append();
	row_reader_close(&page.reader);
	transaction_commit();
	return true;
}

/*
 * Defers the first message of a page, which cannot be made part of a command;
 * the page has no batch and ends behind it.
 */
static bool
defer_first(MessagePage *page, Run *run, int64 published, const Failure *failure)
{
	clear_page(page);
	page->next = failure->row + 1;
	return page_defer_rows(run, published, &failure->row, 1, failure->error);
}

/*
 * Adds a message to its batch, or defers it, unless Redis has it. Returns false if it
 * is too large to be sent together with others; the page ends before it.
 */
static bool
take_row(PageReader *page, Run *run, int64 row)
{
	const LogRow *place = run_row(run, row);
	WindowPlace at = run_place_of(run, place);
	TupleTableSlot *found = row_reader_fetch_message(&page->reader, place);
	Message		message;
	Route		route;
	Lane	   *lane;
	size_t		size;
	bool		is_fresh = place_precedes(page->touched, at);

	if (!is_fresh)
	{
		log_row_origin(found, &message);
		if (tombstones_hold(&message, &page->gap))
			return true;
	}
	log_row_message(found, &message);
	route = route_find(&message, at.window);
	lane = lanes_find(&route, &message);
	if (lane == NULL)
		return true;			/* the page is made again when it is in use */
	if (!place_precedes(lane->at, at))
	{
		if (lane->blocked)
			leave_out(page, lane, at.window, message.dest);
		return true;
	}
	size = toast_raw_datum_size(PointerGetDatum(message.body)) +
		(message.headers ? VARSIZE_ANY(message.headers) : 0);
	if (page->bytes > 0 && size > BATCH_BYTES)
		return false;
	page->bytes += size;
	if (!is_fresh)
		route_keep(&route, &message, at.window, page->published);
	if (deferral_try_defer(&message, place->segment))
		page->gap = (DeferredGap) {0};
	else
		add_to_batch(page, run, row, at.window, &message, &route, lane);
	return true;
}

/* Notes that a message of a window is left out. Redis had it before if that is published; if it lost it, its fence will tell. */
static void
leave_out(PageReader *page, const Lane *lane, int64 window, const text *dest)
{
	if (window <= page->published)
		return;
	lanes_leave_out(lane, window);
	report_left_out(dest);
	if (page->page->left_out == 0)
		page->page->left_out = window;
}

/* Adds a message to the batch of its lane. */
static void
add_to_batch(PageReader *page, const Run *run, int64 row, int64 window, const Message *message,
			 const Route *route, Lane *lane)
{
	Batch	   *batch = batch_of(page, lane);

	batch_add(batch, row, window, &run_window(run, window)->uuid, message, route);
	page->page->last = row;
	page->is_full = batch_is_full(batch, page->size.messages);
}

/* Returns the batch of the page that is for a lane; it begins now if there is none. */
static Batch *
batch_of(PageReader *page, Lane *lane)
{
	MessagePage *made = page->page;
	Batch	   *batch;

	if (lane->batch < made->nbatches && made->batches[lane->batch].lane == lane)
		return &made->batches[lane->batch];
	batch = next_batch(made);
	lane->batch = made->nbatches++;
	batch_begin(batch, page->call, lane, command_of(lane->batch));
	return batch;
}

/* Returns the place for another batch of a page. */
static Batch *
next_batch(MessagePage *page)
{
	if (page->nbatches == page->room)
	{
		int			room = Max(1, page->room * 2);

		page->batches = page->batches ? repalloc(page->batches, room * sizeof(Batch)) :
			MemoryContextAlloc(TopMemoryContext, room * sizeof(Batch));
		memset(page->batches + page->room, 0, (room - page->room) * sizeof(Batch));
		page->room = room;
	}
	return &page->batches[page->nbatches];
}

/* Returns the command that the n-th batch of a page is written into. */
static Command *
command_of(int batch)
{
	if (batch == ncommands)
	{
		int			room = (ncommands + 1) * sizeof(Command *);

		commands = commands ? repalloc(commands, room) : MemoryContextAlloc(TopMemoryContext, room);
		commands[ncommands++] = command_create();
	}
	if (batch >= FEW_COMMANDS)
		command_shrink(commands[batch]);
	return commands[batch];
}
