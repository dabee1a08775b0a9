/*
 * batch.c
 *		Reads a page of messages and writes the command that publishes it.
 *
 * Called by publisher.c. A batch is one run of the script (publish.lua). It is
 * read in a transaction of its own, which has ended before anything is sent;
 * what deferral.c keeps back on the way is on disk by then, for the batch's
 * fence passes it. The command is written in the protocol's form by hand into
 * one buffer that is used again and again: nothing is allocated per message.
 *
 * A message that cannot be made into a part of a command (too large, damaged) is
 * deferred as if it had been refused. An ERROR rolls the page back; it is made
 * once more up to the message that raised it, and when that one is the first of a
 * page, it alone was to blame.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination.h"
#include "bgworker/publish/batch.h"
#include "bgworker/publish/lease.h"
#include "bgworker/publish/release.lua.h"
#include "bgworker/transaction.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/log/deferred.h"
#include "src/log/entry.h"
#include "src/settings.h"
#include "src/table/relations.h"

#define BATCH_BYTES		(1024 * 1024)	/* a batch ends when it has as many */

/* The log segments that a page is read from; opened when first needed. */
typedef struct PageReader
{
	Relation	tables[MAX_SEGMENTS];
	TupleTableSlot *rows[MAX_SEGMENTS];
	size_t		bytes;			/* of bodies and headers that were looked at */
} PageReader;

/* Where a page could not be made, and why. */
typedef struct Failure
{
	int64		row;
	char		error[256];
} Failure;

static MemoryContext page_context;	/* reset for each batch */
static StringInfoData header;

/*
 * Commands. The lease may be renewed while the commit of a page waits for the
 * standby, so those without messages are written elsewhere.
 */
typedef struct Command
{
	StringInfoData arguments;
	int			narguments;
} Command;

static Command page_command;
static Command short_command;
static Command *command = &short_command;	/* that was made last */

static bool try_page(Batch *batch, WindowRows *window, int64 first, int64 end, int64 fresh, Failure *failure);
static void make_page(Batch *batch, WindowRows *window, int64 first, int64 end, int64 fresh, int64 *row);
static bool defer_first(Batch *batch, WindowRows *window, const Failure *failure);
static bool try_defer(WindowRows *window, const int64 *rows, int n, const char *error, Failure *failure);
static void defer_row(PageReader *page, const LogRow *row, const char *error);
static bool defer_unreadable(WindowRows *window, const Failure *failure);
static bool take_row(PageReader *page, const LogRow *row, bool is_fresh, bool *taken);
static TupleTableSlot *fetch(PageReader *page, const LogRow *row);
static void close_page(PageReader *page);
static int	write_prefix(char *fence, const ScriptCall *call, int64 number, const pg_uuid_t *uuid);
static void clear_command(Command *which);
static void begin_command(Command *which, const ScriptCall *call, const char *new_fence, const char *old_fence);
static void add_message(const Message *message);
static void add_bytes(const char *bytes, size_t size, void *arg);
static void add_argument(const char *data, size_t size);
static void add_string(const char *string);
static void add_number(int64 number);

/* Prepares for use; once, when the dispatcher starts. */
void
batch_init(void)
{
	page_context = AllocSetContextCreate(TopMemoryContext, "outbox page", ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&page_command.arguments);
	initStringInfo(&short_command.arguments);
	initStringInfo(&header);
}

/*
 * Makes the batch of the window that begins with row `first` and builds on
 * `fence`. Rows from `fresh` on are looked at for the first time ever; before
 * that, some may have been deferred already. The batch may turn out empty.
 * False if the extension is being dropped.
 */
bool
batch_make(Batch *batch, const ScriptCall *call, WindowRows *window,
		   int64 first, int64 fresh, const char *fence)
{
	int64		end = window->n;
	Failure		failure;

	for (;;)
	{
		if (!transaction_begin("reading messages"))
			return false;
		strlcpy(batch->builds_on, fence, sizeof(batch->builds_on));
		batch->prefix = write_prefix(batch->fence, call, window->number, &window->uuid);
		begin_command(&page_command, call, batch->fence, fence);
		if (try_page(batch, window, first, end, fresh, &failure))
			break;
		if (!deferral_reload())
			return false;
		if (failure.row == first)
			return defer_first(batch, window, &failure);
		end = failure.row;
	}
	batch->bytes = page_command.arguments.len;
	batch_fence_after(batch, window, batch->n, batch->fence);
	KILL_POINT("page_read");
	transaction_commit();
	command = &page_command;
	MemoryContextReset(page_context);
	return true;
}

/* False: a message could not be taken, and the transaction is rolled back. */
static bool
try_page(Batch *batch, WindowRows *window, int64 first, int64 end, int64 fresh, Failure *failure)
{
	MemoryContext caller = MemoryContextSwitchTo(page_context);
	volatile bool made = true;

	PG_TRY();
	{
		make_page(batch, window, first, end, fresh, &failure->row);
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

/* *row is the one that is being looked at. */
static void
make_page(Batch *batch, WindowRows *window, int64 first, int64 end, int64 fresh, int64 *row)
{
	PageReader	page = {0};

	batch->n = 0;
	for (*row = first; *row < end && *row - first < batch->reach &&
		 batch->n < batch->size && page.bytes < BATCH_BYTES && page_command.arguments.len < BATCH_BYTES; (*row)++)
	{
		bool		taken;

		if (!take_row(&page, window_rows_get(window, *row), *row >= fresh, &taken))
			break;
		if (taken)
			batch->rows[batch->n++] = *row;
	}
	batch->next = *row;
	deferred_end_append();
	close_page(&page);
}

/*
 * Makes a batch of no messages: if the fence has not moved it gets a new value,
 * and the lease is renewed.
 */
void
batch_make_empty(const ScriptCall *call, const char *new_fence, const char *fence)
{
	begin_command(&short_command, call, new_fence, fence);
}

/* Makes the command that gives the lease back. */
void
batch_make_release(const ScriptCall *call)
{
	clear_command(&short_command);
	add_string("EVAL");
	add_string(release_script);
	add_string("1");
	add_string(call->lease_key);
	add_string(lease_value());
}

/*
 * The value of the fence when the first n messages of a batch have been added:
 * "<window> <uuid> <connection> <message id>", see position_resume().
 */
void
batch_fence_after(const Batch *batch, WindowRows *window, int n, char *fence)
{
	if (n == 0)
		memmove(fence, batch->builds_on, FENCE_BYTES);
	else
	{
		char		prefix[FENCE_BYTES];

		strlcpy(prefix, batch->fence, sizeof(prefix));
		prefix[batch->prefix] = '\0';
		snprintf(fence, FENCE_BYTES, "%s%lld", prefix, (long long) window_rows_get(window, batch->rows[n - 1])->id);
	}
}

/* The value of the fence at the end of a window without messages. */
void
batch_fence_of_empty_window(char *fence, const ScriptCall *call, int64 number, const pg_uuid_t *uuid)
{
	int			length = write_prefix(fence, call, number, uuid);

	snprintf(fence + length, FENCE_BYTES - length, "0");
}

/* Sends the batch that was made last; a reply is due for it. */
bool
batch_send(RedisLink *link)
{
	resetStringInfo(&header);
	appendStringInfo(&header, "*%d\r\n", command->narguments);
	return redis_link_send(link, header.data, header.len) &&
		redis_link_send_buffer(link, &command->arguments);
}

/*
 * Sets rows aside that Redis refused, all for the same reason; on disk, all of
 * them or none, when this returns. Those that wait behind another one of their
 * destination have not been tried. False if the extension is being dropped.
 */
bool
batch_defer_rows(WindowRows *window, const int64 *rows, int n, const char *error)
{
	Failure		failure;

	for (;;)
	{
		if (!transaction_begin("deferring messages"))
			return false;
		if (try_defer(window, rows, n, error, &failure))
			break;
		if (!deferral_reload() || !defer_unreadable(window, &failure))
			return false;
	}
	KILL_POINT("refusal_written");
	transaction_commit();
	KILL_POINT("refusal_committed");
	return true;
}

/* False: a message could not be read, and the transaction is rolled back. */
static bool
try_defer(WindowRows *window, const int64 *rows, int n, const char *error, Failure *failure)
{
	volatile bool done = true;

	PG_TRY();
	{
		PageReader	page = {0};

		for (int i = 0; i < n; i++)
		{
			failure->row = rows[i];
			defer_row(&page, window_rows_get(window, rows[i]), error);
		}
		deferred_end_append();
		close_page(&page);
	}
	PG_CATCH();
	{
		transaction_abort_for_message(failure->error, sizeof(failure->error));
		done = false;
	}
	PG_END_TRY();
	return done;
}

static void
defer_row(PageReader *page, const LogRow *row, const char *error)
{
	Message		message;

	log_row_envelope(fetch(page, row), &message);
	if (deferral_holds(&message))
		return;
	log_row_message(page->rows[row->segment], &message);
	if (!deferral_try_defer(&message, row->segment))
		deferral_defer_refused(&message, row->segment, error);
}

/* Gives up a message that cannot even be read. False if the extension is being dropped. */
static bool
defer_unreadable(WindowRows *window, const Failure *failure)
{
	const LogRow *row = window_rows_get(window, failure->row);
	PageReader	page = {0};
	Message		message;

	if (!transaction_begin("giving up a message"))
		return false;
	log_row_envelope(fetch(&page, row), &message);
	deferral_give_up(&message, row->segment, failure->error);
	deferred_end_append();
	close_page(&page);
	transaction_commit();
	return true;
}

/* The first message of a page cannot be made into a part of a command: an empty batch behind it. */
static bool
defer_first(Batch *batch, WindowRows *window, const Failure *failure)
{
	clear_command(&page_command);
	batch->bytes = 0;
	batch->n = 0;
	batch->next = failure->row + 1;
	strlcpy(batch->fence, batch->builds_on, sizeof(batch->fence));
	return batch_defer_rows(window, &failure->row, 1, failure->error);
}

/*
 * Adds a message to the command, or leaves it out. False: it is too large to
 * travel with others, the batch ends before it.
 */
static bool
take_row(PageReader *page, const LogRow *row, bool is_fresh, bool *taken)
{
	Message		message;
	size_t		size;

	*taken = false;
	log_row_envelope(fetch(page, row), &message);
	if (!is_fresh && deferral_holds(&message))
		return true;
	log_row_message(page->rows[row->segment], &message);
	size = toast_raw_datum_size(PointerGetDatum(message.body)) +
		(message.headers ? VARSIZE_ANY(message.headers) : 0);
	if (page->bytes > 0 && size > BATCH_BYTES)
		return false;
	page->bytes += size;
	if (deferral_try_defer(&message, row->segment))
		return true;
	add_message(&message);
	*taken = true;
	return true;
}

/*
 * Committed and immutable: any snapshot will do. But somebody may rewrite the
 * table (VACUUM FULL): then we die here, and our successor collects anew; no
 * message is to blame for that.
 */
static TupleTableSlot *
fetch(PageReader *page, const LogRow *row)
{
	if (page->tables[row->segment] == NULL)
	{
		Oid			table = relations_enter()->segments[RING_LOG][row->segment].table;

		page->tables[row->segment] = table_open(table, AccessShareLock);
		page->rows[row->segment] = table_slot_create(page->tables[row->segment], NULL);
	}
	if (!table_tuple_fetch_row_version(page->tables[row->segment],
									   unconstify(ItemPointerData *, &row->tid),
									   SnapshotAny, page->rows[row->segment]))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg_internal("message %lld is missing in log segment %d", (long long) row->id, row->segment)));
	if (log_row_id(page->rows[row->segment]) != row->id)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg_internal("message %lld has moved in log segment %d", (long long) row->id, row->segment)));
	return page->rows[row->segment];
}

static void
close_page(PageReader *page)
{
	for (int n = 0; n < MAX_SEGMENTS; n++)
	{
		if (page->tables[n])
		{
			ExecDropSingleTupleTableSlot(page->rows[n]);
			table_close(page->tables[n], AccessShareLock);
		}
	}
}

/* What all values of the fence in a window begin with; returns its length. */
static int
write_prefix(char *fence, const ScriptCall *call, int64 number, const pg_uuid_t *uuid)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));
	int			length = snprintf(fence, FENCE_BYTES, "%lld %s %s ", (long long) number, text, call->connection);

	pfree(text);
	return length;
}

/* What is written from now on is this command. */
static void
clear_command(Command *which)
{
	command = which;
	redis_link_empty_buffer(&command->arguments);
	command->narguments = 0;
}

/* Begins a run of the script; messages follow. */
static void
begin_command(Command *which, const ScriptCall *call, const char *new_fence, const char *old_fence)
{
	clear_command(which);
	add_string("EVALSHA");
	add_string(call->sha);
	add_string("2");
	add_string(call->fence_key);
	add_string(call->lease_key);
	add_string(old_fence);
	add_string(new_fence);
	add_string(lease_value());
	add_number(LEASE_MS);
}

static void
add_message(const Message *message)
{
	const Destination *destination = destination_find(message->dest);
	const text *stream = destination && destination->stream ? destination->stream : message->dest;

	add_number(message->id);
	entry_write_text(stream, add_bytes, NULL);
	add_number(destination && destination->maxlen >= 0 ? destination->maxlen : outbox_stream_maxlen);
	add_number(entry_count_fields(message));
	entry_write(message, add_bytes, NULL);
}

/* An EntrySink. */
static void
add_bytes(const char *bytes, size_t size, void *arg)
{
	add_argument(bytes, size);
}

static void
add_argument(const char *data, size_t size)
{
	char		length[24];
	int			digits = pg_ulltoa_n(size, length);

	enlargeStringInfo(&command->arguments, size + sizeof(length) + 5);
	appendStringInfoCharMacro(&command->arguments, '$');
	appendBinaryStringInfo(&command->arguments, length, digits);
	appendBinaryStringInfo(&command->arguments, "\r\n", 2);
	appendBinaryStringInfo(&command->arguments, data, size);
	appendBinaryStringInfo(&command->arguments, "\r\n", 2);
	command->narguments++;
}

static void
add_string(const char *string)
{
	add_argument(string, strlen(string));
}

static void
add_number(int64 number)
{
	char		digits[24];

	add_argument(digits, pg_lltoa(number, digits));
}
