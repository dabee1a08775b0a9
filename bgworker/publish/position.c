/*
 * position.c
 *		What is new, what is next, and where to go on after anything died.
 *
 * Called by the dispatcher. A window is opened in one transaction: take a
 * snapshot S; if messages were committed since the last one, insert {number,
 * uuid, S} and commit synchronously. That commit makes the window immutable
 * and puts the WAL of every producer visible in S on disk before anything of
 * theirs is sent. The window's own transaction id is taken after S, so that
 * after a crash no id below xmax(S) is given out again.
 *
 *	 died before the commit		the next look finds the same messages
 *	 after it, before sending	the row is there, the fence names an earlier one
 *	 between batches				the fence names this window and the last message
 *	 after the last batch		as above; nothing is left of the window
 *
 * Where we are is told by the fence in Redis. `published` in the rows of the
 * window tables is what was known when they were written: it never runs ahead,
 * so expiry and the views rely on it. The same goes for `propagated`, which
 * tells how far propagation.c got with the receipts of what is published.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "bgworker/heir.h"
#include "bgworker/publish/position.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/log/log.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/store/store.h"
#include "src/table/relations.h"
#include "src/unique_id.h"

#define FIRST_SIZE	1024

/* "<window number> <window uuid> <connection> <last message id>" */
#define FENCE_FORMAT	"%lld %36s %*s %lld"

/* What the fence holds before anything was sent, but for the connection. */
#define NO_FENCE	"none"

/* Transactions that have written messages of our own. */
typedef struct OwnTransactions
{
	FullTransactionId *txs;
	uint32		n;
	uint32		size;
	const Instance *instance;	/* that we were */
	Oid			asked;			/* database that was asked about last */
	bool		is_ours;		/* whether its messages are ours to send */
} OwnTransactions;

/* The mark in Redis: how far the dispatcher got. */
typedef struct Fence
{
	int64		number;
	pg_uuid_t	uuid;
	int64		last_id;
} Fence;

static bool told;				/* the log knows that the fence is not there, or
								 * of no use */

static void all_is_published(Position *position);
static void append_window(Position *position, const SnapshotValue *snapshot, WindowRows *rows);
static void keep_window(Window *kept, const Window *window);
static void keep_snapshot(SnapshotValue **kept, const SnapshotValue *snapshot);
static void collect(WindowRows *rows, const SnapshotValue *after, const SnapshotValue *upto);
static bool collect_row(TupleTableSlot *row, int segment, void *arg);
static bool is_left_to_us(OwnTransactions *own, Oid database);
static bool note_own(TupleTableSlot *row, int segment, void *arg);
static bool parse_fence(const char *text, Fence *fence);
static void resume_without_fence(Position *position);
static void resume_from_oldest(Position *position, const char *reason);
static TimestampTz note_loss(int64 number);
static void keep_loss(TimestampTz before);
static void note_missing(const Window *before, const Window *next);
static int64 oldest_to_replay(const Position *position);
static void propagate_unmarked(Position *position);
static bool is_news(void);
static void report_published(const Position *position);

/*
 * Reads from the tables how far we had got. Nothing is ever sent again from
 * before the end of `first_window`. Needs an open transaction.
 */
void
position_load(Position *position, int64 first_window)
{
	Window		newest;

	if (!window_newest(&newest))
		elog(ERROR, "no window is left");
	keep_window(&position->opened, &newest);
	keep_snapshot(&position->looked, newest.snapshot);

	/* What has been emptied had been published, whatever the row says. */
	position->published = Max(newest.published, window_oldest_number());
	position->sent = position->published;
	position->propagated = Min(Max(newest.propagated, window_oldest_number()), position->published);
	position->marked = newest.number;
	position->touched = newest.number;
	position->touched_upto = PG_INT64_MAX;
	position->first_window = first_window;
	position->resume_after = 0;
	position->rows.number = -1;
	report_published(position);
}

/*
 * Puts behind us for good, without sending it, all that was committed in other
 * databases; for a copy whose original sends it. The instance is that of the
 * original, still. Needs an open transaction.
 *
 * The window that is appended ends before those that were committed here: its
 * snapshot takes them for being still in progress. So they are found like any
 * other transaction that ends later than younger ones.
 */
void
position_skip_foreign(Position *position, const Instance *instance)
{
	WindowRows	none = {0};
	OwnTransactions own = {.size = FIRST_SIZE, .instance = instance};
	SnapshotValue *now = snapshot_value_now();

	own.txs = palloc(own.size * sizeof(FullTransactionId));
	log_scan(GetActiveSnapshot(), position->looked, now, note_own, &own);
	append_window(position, snapshot_value_without(now, own.txs, own.n), &none);
	position->first_window = position->opened.number;
	all_is_published(position);
}

/*
 * Looks whether messages were committed since the last look, and if so opens
 * the next window. Returns whether there is one.
 */
bool
position_open_window(Position *position)
{
	SnapshotValue *now;
	WindowRows	rows = {0};

	if (!transaction_begin("looking for messages"))
		return false;
	now = snapshot_value_now();
	collect(&rows, position->looked, now);
	if (rows.n == 0 && rows.receipts == 0)
	{
		keep_snapshot(&position->looked, now);
		transaction_commit();
		return false;
	}

	KILL_POINT("messages_found");
	append_window(position, now, &rows);
	KILL_POINT("window_written");
	transaction_commit();
	KILL_POINT("window_committed");
	if (rows.receipts > 0)
		position->marked = position->opened.number;

	/* Kept only if it is the next one to be sent; else it is read again. */
	if (position->sent + 1 == position->opened.number)
	{
		window_rows_free(&position->rows);
		position->rows = rows;
	}
	else
		window_rows_free(&rows);
	return true;
}

/*
 * Appends an empty window, which says on disk how far we have published and,
 * having a new snapshot, that this is all. Only when all is published. False
 * if the extension is being dropped.
 */
bool
position_close(Position *position)
{
	WindowRows	none = {0};

	if (!transaction_begin("noting the position"))
		return false;
	append_window(position, position->looked, &none);
	KILL_POINT("closing_written");
	transaction_commit();
	KILL_POINT("closing_committed");
	all_is_published(position);
	return true;
}

/*
 * The same when we stop publishing: without waiting for anybody, be it for a lock or for a
 * standby, and so maybe not at all. The fence stays where it is: it may name a
 * window older than this one, but none that a standby lacks.
 */
void
position_close_at_once(Position *position)
{
	WindowRows	none = {0};
	Rings		rings;

	if (!position_is_caught_up(position) || position->opened.published >= position->published ||
		!transaction_begin("noting the position"))
		return;
	rings_read(&rings);
	if (ConditionalLockRelationOid(relations_enter()->segments[RING_LOG][rings.ring[RING_LOG].current].window, RowExclusiveLock))
		append_window(position, position->looked, &none);
	transaction_commit_local();
	all_is_published(position);
}

/* The same fence in the name of another connection. */
void
position_claim_fence(const char *fence, const char *connection, char *claimed, size_t size)
{
	long long	number;
	long long	last_id;
	char		uuid[37];

	if (sscanf(fence, FENCE_FORMAT, &number, uuid, &last_id) == 3)
		snprintf(claimed, size, "%lld %s %s %lld", number, uuid, connection, last_id);
	else
		snprintf(claimed, size, "%s %s", NO_FENCE, connection);
}

/*
 * Goes to where Redis says it is; called on every connect, with the value of
 * the fence. Needs an open transaction.
 */
void
position_resume(Position *position, const char *fence_text)
{
	Fence		fence;
	Window		window;

	position->resume_after = 0;
	window_rows_free(&position->rows);
	position->sent = position->published;

	if (!parse_fence(fence_text, &fence))
		resume_without_fence(position);
	else if (fence.number >= window_oldest_number() && window_fetch(fence.number, &window) &&
			 memcmp(&window.uuid, &fence.uuid, sizeof(pg_uuid_t)) == 0)
	{
		position->sent = fence.number;
		if (fence.number > window_oldest_number())
		{
			position->sent = fence.number - 1;
			position->resume_after = fence.last_id;
		}
		position->published = Max(position->published, position->sent);
		propagate_unmarked(position);
		told = false;
	}
	else if (fence.number < window_oldest_number())
		resume_from_oldest(position, "the fence in Redis is older than the windows that are kept; going on");
	else if (is_news())
		ereport(LOG,
				(errmsg("outbox: the fence in Redis names window %lld, which this database never opened; going on after window %lld",
						(long long) fence.number, (long long) position->sent),
				 errdetail("The database was restored to an earlier time, or a standby was promoted that lacked the newest transactions.")));
	report_published(position);
}

/* Notes that the receipts of all windows up to this one have been propagated. */
void
position_propagate(Position *position, int64 upto)
{
	position->propagated = upto;
	propagate_unmarked(position);
	report_published(position);
}

/*
 * The window up to which a store has what it was handed: the one that its mark
 * names or, if that is not kept, the oldest one that is. Needs an open
 * transaction.
 */
int64
position_of_mark(const char *mark)
{
	int64		oldest = window_oldest_number();
	long long	number;
	Window		window;
	char		expected[STORE_MARK_BYTES];

	if (sscanf(mark, "%lld ", &number) != 1 || number <= oldest || !window_fetch(number, &window))
		return oldest;
	position_mark(window.number, &window.uuid, expected, sizeof(expected));
	return strcmp(mark, expected) == 0 ? number : oldest;
}

/* Takes all windows after that one for having receipts: they are propagated once more. */
void
position_receipts_after(Position *position, int64 number)
{
	position->propagated = Min(position->propagated, number);
	position->marked = position->opened.number;
	report_published(position);
}

/* What is left in a store when it has all ids up to the end of a window. */
void
position_mark(int64 number, const pg_uuid_t *uuid, char *mark, size_t size)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));

	snprintf(mark, size, "%lld %s", (long long) number, text);
	pfree(text);
}

/* Notes that the window whose rows were collected is in Redis. */
void
position_advance(Position *position)
{
	told = false;				/* the fence has moved: what is found next is news */
	position->sent = position->rows.number;
	position->resume_after = 0;
	window_rows_free(&position->rows);
	if (position->sent > position->published)
	{
		position->published = position->sent;
		propagate_unmarked(position);
		report_published(position);
	}
}

/*
 * The messages of the window to be sent next; NULL if the extension is being
 * dropped. They are collected once and stay until position_advance().
 */
WindowRows *
position_next_rows(Position *position)
{
	Window		before;
	Window		next;

	if (position->rows.number > position->sent)
		return &position->rows;
	if (!transaction_begin("reading a window"))
		return NULL;
	if (!window_after(position->sent, &next))
		next = position->opened;
	if (!window_at(position->sent, &before))
		before = next;
	if (before.number != position->sent || next.number != position->sent + 1)
		note_missing(&before, &next);
	window_rows_free(&position->rows);
	collect(&position->rows, before.snapshot, next.snapshot);
	position->rows.number = next.number;
	position->rows.uuid = next.uuid;
	transaction_commit();
	KILL_POINT("window_read_again");
	return &position->rows;
}

/*
 * Whether all messages of all transactions up to `tx` that had ended when it
 * committed are in Redis, and their receipts propagated. `tx` must be one of the
 * dispatcher's own.
 */
bool
position_has_published(const Position *position, FullTransactionId tx)
{
	Window		window;

	if (position->propagated == position->opened.number)
		return snapshot_value_sees(position->looked, tx);
	return window_at(position->propagated, &window) &&
		snapshot_value_sees(window.snapshot, tx);
}

static void
all_is_published(Position *position)
{
	told = false;
	position->sent = position->published = position->opened.number;
	propagate_unmarked(position);
	report_published(position);
}

/* Writes the next window, which holds `rows`, and makes it the newest. */
static void
append_window(Position *position, const SnapshotValue *snapshot, WindowRows *rows)
{
	Rings		rings;
	bool		is_empty = rows->n == 0 && rows->receipts == 0;
	bool		all_propagated = position->propagated == position->opened.number;
	Window		window = {
		.number = position->opened.number + 1,
		.tx = GetTopFullTransactionId(),
		.snapshot = (SnapshotValue *) snapshot,
		.opened_at = GetCurrentTimestamp(),
		.published = is_empty ? position->opened.number + 1 : position->published,
		.propagated = is_empty && all_propagated ? position->opened.number + 1 : position->propagated,
		.messages = position->opened.messages + rows->n,
		.oldest = rows->oldest
	};

	unique_id_random(&window.uuid);
	rings_read(&rings);
	window_append(&window, rings.ring[RING_LOG].current);

	keep_window(&position->opened, &window);
	keep_snapshot(&position->looked, snapshot);
	position->opened_at = clock_now();
	rows->number = window.number;
	rows->uuid = window.uuid;
}

static void
keep_window(Window *kept, const Window *window)
{
	SnapshotValue *snapshot = kept->snapshot;

	keep_snapshot(&snapshot, window->snapshot);
	*kept = *window;
	kept->snapshot = snapshot;
}

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

static void
collect(WindowRows *rows, const SnapshotValue *after, const SnapshotValue *upto)
{
	log_scan(GetActiveSnapshot(), after, upto, collect_row, rows);
	window_rows_sort(rows);
}

static bool
collect_row(TupleTableSlot *row, int segment, void *arg)
{
	WindowRows *rows = arg;
	TimestampTz at = log_row_at(row);

	if (rows->oldest == 0 || at < rows->oldest)
		rows->oldest = at;
	if (log_row_is_receipt(row))
		rows->receipts++;
	else
		window_rows_add(rows, &(LogRow) {.id = log_row_id(row), .tid = row->tts_tid, .segment = segment});
	return true;
}

/*
 * Whether what was enqueued in a database is ours to send. A copy of a copy has
 * also what was enqueued in that one before its dispatcher ever ran; if it is
 * gone, nobody else has that.
 */
static bool
is_left_to_us(OwnTransactions *own, Oid database)
{
	if (database != own->asked)
	{
		own->asked = database;
		own->is_ours = database != own->instance->database &&
			(database == MyDatabaseId || !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database))) &&
			heir_claim(&own->instance->id, database);
	}
	return own->is_ours;
}

/* Rows of one transaction mostly come one after another. */
static bool
note_own(TupleTableSlot *row, int segment, void *arg)
{
	OwnTransactions *own = arg;
	FullTransactionId tx = log_row_tx(row);

	if (!is_left_to_us(own, log_row_database(row)) ||
		(own->n > 0 && FullTransactionIdEquals(own->txs[own->n - 1], tx)))
		return true;
	if (own->n == own->size)
	{
		own->size *= 2;
		own->txs = repalloc_huge(own->txs, own->size * sizeof(FullTransactionId));
	}
	own->txs[own->n++] = tx;
	return true;
}

static bool
parse_fence(const char *text, Fence *fence)
{
	long long	number;
	long long	last_id;
	char		uuid[37];

	if (sscanf(text, FENCE_FORMAT, &number, uuid, &last_id) != 3 || strlen(uuid) != 36 ||
		strspn(uuid, "0123456789abcdef-") != 36)
		return false;
	fence->number = number;
	fence->last_id = last_id;
	fence->uuid = *DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(uuid)));
	return true;
}

/* Redis is new, another one, or was emptied. */
static void
resume_without_fence(Position *position)
{
	if (position->published <= position->first_window)
		return;
	if (outbox_redis_data_loss != DATA_LOSS_RESUME)
		resume_from_oldest(position, "Redis has no fence of this database; sending all that the log still has,");
	else if (is_news())
		ereport(LOG, (errmsg("outbox: Redis has no fence of this database; going on after window %lld, as \"outbox.redis_data_loss\" says",
							 (long long) position->sent)));
}

/* Sends all that is kept, and tells what is not kept any more, if anything is not. */
static void
resume_from_oldest(Position *position, const char *reason)
{
	TimestampTz lost_before = 0;

	position->sent = oldest_to_replay(position);
	if (position->sent > position->first_window)
		lost_before = note_loss(position->sent);
	if (is_news())
		ereport(LOG, (errmsg("outbox: %s after window %lld", reason, (long long) position->sent),
				  lost_before == 0 ? 0 :
				  errdetail("What Redis has lost of the messages enqueued before %s is not in the log any more.",
							timestamptz_to_str(lost_before))));
}

/*
 * Notes that all from before the end of a window may be missing in Redis, until
 * somebody acknowledges that; returns when that was. Until the fence has moved
 * each connection comes here.
 */
static TimestampTz
note_loss(int64 number)
{
	Window		oldest;

	if (!window_at(number, &oldest) && !window_after(number, &oldest))
		elog(ERROR, "no window is left");
	keep_loss(oldest.opened_at);
	return oldest.opened_at;
}

/* Keeps for status that what was enqueued before then may be missing in Redis. Needs an open transaction. */
static void
keep_loss(TimestampTz before)
{
	(void) transaction_execute("INSERT INTO outbox.loss SELECT $1, clock_timestamp() "
							   "WHERE NOT EXISTS (SELECT FROM outbox.loss WHERE lost_before >= $1)",
							   1, (Oid[]) {TIMESTAMPTZOID}, (Datum[]) {TimestampTzGetDatum(before)}, NULL);
}

/*
 * Windows that must be there are not: something has removed them, or rolled them
 * back. All that was committed between the two that are kept is sent, maybe
 * again; what the first of them would have begun with is gone with it.
 */
static void
note_missing(const Window *before, const Window *next)
{
	ereport(LOG,
			(errmsg("outbox: windows before window %lld are missing; going on after window %lld",
					(long long) next->number, (long long) before->number),
			 errdetail("Messages enqueued before %s may be missing in Redis, or be there twice.",
					   timestamptz_to_str(next->opened_at))));
	keep_loss(next->opened_at);
}

/* The window after which all that is kept would be sent again. */
static int64
oldest_to_replay(const Position *position)
{
	return Min(Max(window_oldest_number(), position->first_window), position->published);
}

/* Windows without receipts need nobody to hand them on. */
static void
propagate_unmarked(Position *position)
{
	if (position->marked <= position->propagated)
		position->propagated = position->published;
}

/* Each connection meets the same fence until something passes: the log need not tell that each time. */
static bool
is_news(void)
{
	bool		was_told = told;

	told = true;
	return !was_told;
}

static void
report_published(const Position *position)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.published = position->published;
	shared->report.propagated = position->propagated;
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->progress);
}
