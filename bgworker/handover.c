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
#include "utils/timestamp.h"

#include "bgworker/bookkeeping.h"
#include "bgworker/handover.h"
#include "bgworker/transaction.h"
#include "src/log.h"
#include "src/shared.h"

/* Windows that are handed on at once when we are behind. */
#define MAX_WINDOWS		64

/* Markers that are told at once. */
#define MAX_MARKERS		10000

/* What a marker says: the endpoint has processed the message. */
typedef struct Marker
{
	pg_uuid_t	key;
	char	   *endpoint;
	char	   *msgid;
} Marker;

/* The markers of the windows to be handed on next, by endpoint. */
typedef struct Batch
{
	int64		upto;			/* newest window of these */
	int64		n;
	int64		size;
	Marker	   *markers;
} Batch;

/* With as many put aside, no more windows are read. */
#define MAX_ASIDE		10000

/* How long until what was put aside is tried again. */
#define FIRST_RETRY_MS	100
#define LAST_RETRY_MS	5000

static MemoryContext context;	/* of the batch */
static MemoryContext aside_context;
static Batch aside;				/* what could not be told; in aside_context */
static int64 told;				/* newest window that is dealt with but for
								 * what was put aside */
static TimestampTz next_try;	/* of what was put aside */
static int	retry_ms;

static bool has_more(const Position *position, int64 from);
static bool read_batch(Batch *batch, int64 from, int64 upto);
static bool add_marker(TupleTableSlot *row, int slot, void *arg);
static void tell_all(const Batch *batch);
static void tell(const Marker *markers, int n);
static void tell_aside(void);
static void put_aside(const Marker *markers, int n);
static void report_error(const char *error);
static void append(Batch *batch, const pg_uuid_t *key, const char *endpoint, const char *msgid);
static int	compare_endpoints(const void *a, const void *b);

/* Prepares for use; once, when the dispatcher starts. */
void
handover_init(void)
{
	context = AllocSetContextCreate(TopMemoryContext, "outbox handover", ALLOCSET_DEFAULT_SIZES);
}

/*
 * Hands on the markers of some windows that are published, if there are any
 * that have not been. Says whether it got any further.
 *
 * What somebody has locked, or whose table cannot be used, is put aside and
 * tried again. So it holds up nothing but the durable note of how far we are.
 */
bool
handover_run(Position *position)
{
	Batch		batch = {0};
	int64		from = Max(told, position->handed_over);

	if (position->handed_over >= position->published)
		return false;
	if (aside.n > 0 && GetCurrentTimestamp() >= next_try)
		tell_aside();
	if (has_more(position, from))
	{
		MemoryContextReset(context);
		batch.upto = Min(position->published, from + MAX_WINDOWS);
		if (!read_batch(&batch, from, batch.upto))
			return false;
		tell_all(&batch);
		told = batch.upto;
	}
	if (aside.n == 0)
	{
		report_error("");
		position_hand_over(position, Max(told, from));
	}
	return Max(told, from) > from || aside.n == 0;
}

/* How long until handover_run() has something to do. */
long
handover_ms_until_due(const Position *position)
{
	if (position->handed_over >= position->published)
		return PG_INT32_MAX;
	if (has_more(position, Max(told, position->handed_over)))
		return 0;
	return TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next_try);
}

static bool
has_more(const Position *position, int64 from)
{
	return from < position->published && aside.n < MAX_ASIDE;
}

/* False if the extension is being dropped. */
static bool
read_batch(Batch *batch, int64 from, int64 upto)
{
	Window		before;
	Window		last;

	if (!transaction_begin("reading markers"))
		return false;
	if (!window_fetch(from, &before) || !window_fetch(upto, &last))
		elog(ERROR, "window %lld is missing", (long long) from);
	log_scan(GetActiveSnapshot(), before.snapshot, last.snapshot, add_marker, batch);
	transaction_commit();
	if (batch->n > 1)
		qsort(batch->markers, batch->n, sizeof(Marker), compare_endpoints);
	return true;
}

/* A LogReader. */
static bool
add_marker(TupleTableSlot *row, int slot, void *arg)
{
	MemoryContext caller;
	Message		message;

	if (!log_row_is_marker(row))
		return true;
	log_row_message(row, &message);
	caller = MemoryContextSwitchTo(context);
	append(arg, &message.key, text_to_cstring(message.message_id), text_to_cstring(message.cause));
	MemoryContextSwitchTo(caller);
	return true;
}

/* Tells all that is in a batch, endpoint by endpoint. */
static void
tell_all(const Batch *batch)
{
	int64		first = 0;

	for (int64 i = 1; i <= batch->n; i++)
	{
		if (i < batch->n && i - first < MAX_MARKERS &&
			strcmp(batch->markers[i].endpoint, batch->markers[first].endpoint) == 0)
			continue;
		tell(&batch->markers[first], (int) (i - first));
		first = i;
	}
}

/* Tells some markers of one endpoint. */
static void
tell(const Marker *markers, int n)
{
	char	  **msgids = MemoryContextAlloc(context, n * sizeof(char *));

	for (int i = 0; i < n; i++)
		msgids[i] = markers[i].msgid;
	switch (bookkeeping_mark(markers[0].endpoint, msgids, n))
	{
		case MARKING_DONE:
			break;
		case MARKING_FAILED:
			report_error(bookkeeping_error());
			put_aside(markers, n);
			break;
		case MARKING_INCOMPLETE:
			put_aside(markers, n);
			break;
	}
	pfree(msgids);
}

/* Tries again what was put aside; what fails again is put aside anew. */
static void
tell_aside(void)
{
	Batch		again = aside;
	MemoryContext old = aside_context;

	memset(&aside, 0, sizeof(aside));
	aside_context = NULL;
	tell_all(&again);
	MemoryContextDelete(old);

	retry_ms = aside.n == 0 ? 0 : Min(Max(retry_ms * 2, FIRST_RETRY_MS), LAST_RETRY_MS);
	next_try = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_ms);
}

static void
put_aside(const Marker *markers, int n)
{
	MemoryContext caller;

	if (aside_context == NULL)
		aside_context = AllocSetContextCreate(TopMemoryContext, "outbox markers put aside", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(aside_context);
	for (int i = 0; i < n; i++)
		append(&aside, &markers[i].key, pstrdup(markers[i].endpoint), pstrdup(markers[i].msgid));
	MemoryContextSwitchTo(caller);
}

/* Tells status, and the log if it is news; "" = all is well. */
static void
report_error(const char *error)
{
	DatabaseShared *shared = shared_mine();

	if (strcmp(shared->report.handover_error, error) == 0)
		return;
	if (error[0] != '\0')
		ereport(LOG, (errmsg("outbox: processed messages cannot be handed on: %s", error)));
	else
		ereport(LOG, (errmsg("outbox: processed messages can be handed on again")));
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	strlcpy(shared->report.handover_error, error, sizeof(shared->report.handover_error));
	LWLockRelease(shared->lock);
}

/* The batch's array grows in the current context. */
static void
append(Batch *batch, const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	if (batch->n == batch->size)
	{
		batch->size = batch->size ? batch->size * 2 : 64;
		batch->markers = batch->markers ?
			repalloc_huge(batch->markers, batch->size * sizeof(Marker)) :
			palloc(batch->size * sizeof(Marker));
	}
	batch->markers[batch->n++] = (Marker) {*key, (char *) endpoint, (char *) msgid};
}

static int
compare_endpoints(const void *a, const void *b)
{
	return strcmp(((const Marker *) a)->endpoint, ((const Marker *) b)->endpoint);
}
