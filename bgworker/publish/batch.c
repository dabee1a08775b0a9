/*
 * batch.c
 *		The messages of a lane that are sent together: one run of the script.
 *
 * Called by page.c, which fills batches, and by refusals.c. A batch builds on the
 * value that the fence of its lane has when all batches before it are done, and
 * brings it to the last of its messages. Nothing here reads a table or talks to Redis.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/publish/batch.h"
#include "src/limits.h"

#define FEW_ROWS	64

static void add_row(Batch *batch, int64 row);

/* Begins a batch without messages, which builds on what is under way for its lane. */
void
batch_begin(Batch *batch, const ScriptCall *call, Lane *lane, Command *command)
{
	batch->lane = lane;
	batch->command = command;
	batch->n = 0;
	batch->window = 0;
	batch->from = lane->at;
	strlcpy(batch->builds_on, lane->fence, sizeof(batch->builds_on));
	command_begin(command, call, lane);
}

/* Adds a message, which is a row of the run behind all that the batch has; its window has that uuid. */
void
batch_add(Batch *batch, int64 row, int64 window, const pg_uuid_t *uuid, const Message *message, const Route *route)
{
	if (window != batch->window)
	{
		batch->window = window;
		command_begin_window(batch->command, window, uuid);
	}
	command_add_message(batch->command, message, route);
	add_row(batch, row);
}

/* Check whether a batch has so many messages (outbox.batch_size), or as many bytes as one may have. */
bool
batch_is_full(const Batch *batch, int messages)
{
	return batch->n >= messages || command_bytes(batch->command) >= BATCH_BYTES;
}

/* Computes what the fence will be when all messages have been added, and completes the command. */
void
batch_complete(Batch *batch, Run *run)
{
	batch->to = batch_fence_after(batch, run, batch->n, batch->fence);
	command_end(batch->command, batch->fence);
}

/*
 * Computes the value of the fence when the first n messages of a batch have been
 * added: it names the last of them, and its window. Returns that place.
 */
WindowPlace
batch_fence_after(const Batch *batch, Run *run, int n, char *fence)
{
	WindowPlace last;

	if (n == 0)
	{
		memmove(fence, batch->builds_on, FENCE_BYTES);
		return batch->from;
	}
	last = run_place(run, batch->rows[n - 1]);
	lane_write_fence(batch->lane, &(Fence) {.number = last.window, .uuid = run_window(run, last.window)->uuid, .last_id = last.id}, fence);
	return last;
}

/* Adds a row to those that the batch has. The room for them is kept. */
static void
add_row(Batch *batch, int64 row)
{
	if (batch->n == batch->room)
	{
		batch->room = Max(FEW_ROWS, batch->room * 2);
		batch->rows = batch->rows ? repalloc(batch->rows, batch->room * sizeof(int64)) :
			MemoryContextAlloc(TopMemoryContext, batch->room * sizeof(int64));
	}
	batch->rows[batch->n++] = row;
}
