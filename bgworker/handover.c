/*
 * handover.c
 *		Hands on what has been processed to those whom an endpoint names.
 *
 * Called by the dispatcher after windows have been published. An endpoint may
 * keep its records in a table of the user's own, or its message ids in an
 * outside store. For these outbox_commit() leaves markers in the log, so that
 * windows carry the ids here. Only when a window is in Redis are its markers
 * handed on; and only then do records and log slots begin to age
 * (position_has_published()). So an id is at every moment in at least one
 * place.
 *
 * Everything here may happen twice: how far we got is noted like `published`
 * in the rows of windows, and never runs ahead.
 *
 *	 died before all are told	the markers are read again, all are told again
 *	 after it, before the note	the same
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "bgworker/handover.h"
#include "bgworker/transaction.h"
#include "src/log.h"

/* Windows that are handed on at once when we are behind. */
#define MAX_WINDOWS		64

/* What a marker says: the endpoint has processed the message. */
typedef struct Marker
{
	pg_uuid_t	key;
	char	   *endpoint;
	char	   *msgid;
} Marker;

/* The markers of the windows to be handed on next, in no order. */
typedef struct Batch
{
	int64		upto;			/* newest window of these */
	int64		n;
	int64		size;
	Marker	   *markers;
} Batch;

static MemoryContext context;	/* of the batch */

static bool read_batch(Batch *batch, const Position *position);
static bool add_marker(TupleTableSlot *row, int slot, void *arg);

/* Prepares for use; once, when the dispatcher starts. */
void
handover_init(void)
{
	context = AllocSetContextCreate(TopMemoryContext, "outbox handover", ALLOCSET_DEFAULT_SIZES);
}

/*
 * Hands on the markers of some windows that are published, if there are any
 * that have not been. Says whether it got any further.
 */
bool
handover_run(Position *position)
{
	Batch		batch = {0};

	if (position->handed_over >= position->published)
		return false;
	MemoryContextReset(context);
	if (!read_batch(&batch, position))
		return false;
	position_hand_over(position, batch.upto);
	return true;
}

/* How long until handover_run() has something to do. */
long
handover_ms_until_due(const Position *position)
{
	return position->handed_over >= position->published ? PG_INT32_MAX : 0;
}

/* False if the extension is being dropped. */
static bool
read_batch(Batch *batch, const Position *position)
{
	Window		before;
	Window		last;

	if (!transaction_begin("reading markers"))
		return false;
	batch->upto = Min(position->published, position->handed_over + MAX_WINDOWS);
	if (!window_fetch(position->handed_over, &before) || !window_fetch(batch->upto, &last))
		elog(ERROR, "window %lld is missing", (long long) position->handed_over);
	log_scan(GetActiveSnapshot(), before.snapshot, last.snapshot, add_marker, batch);
	transaction_commit();
	return true;
}

/* A LogReader. */
static bool
add_marker(TupleTableSlot *row, int slot, void *arg)
{
	Batch	   *batch = arg;
	MemoryContext caller;
	Message		message;
	Marker	   *marker;

	if (!log_row_is_marker(row))
		return true;
	log_row_message(row, &message);

	caller = MemoryContextSwitchTo(context);
	if (batch->n == batch->size)
	{
		batch->size = batch->size ? batch->size * 2 : 64;
		batch->markers = batch->markers ?
			repalloc_huge(batch->markers, batch->size * sizeof(Marker)) :
			palloc(batch->size * sizeof(Marker));
	}
	marker = &batch->markers[batch->n++];
	marker->key = message.key;
	marker->endpoint = text_to_cstring(message.message_id);
	marker->msgid = text_to_cstring(message.cause);
	MemoryContextSwitchTo(caller);
	return true;
}
