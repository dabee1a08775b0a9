/*
 * deferral.c
 *		Keeps what a destination refuses, and brings it back in order.
 *
 * A message that its destination refused is copied to outbox.deferred, and so
 * is every later message of that destination as long as one waits there; all
 * other destinations go on. The publisher asks here for each message before it
 * sends it. What a chunk leaves out is committed to outbox.deferred before any
 * chunk is sent whose fence passes it, so a crash at any point finds it either
 * ahead of the fence in the log or here.
 *
 * Due messages go back to the log with their original id, by the ordinary way
 * out, and only when no window is unpublished: then they sort before all that
 * came later. First one alone, as a probe of its destination; when its window
 * has been published, the rest in their order.
 *
 * A returned row stays here as a tombstone until the log slot of the original
 * is emptied: whoever reads a window again leaves out the original, and sends
 * the row that was returned.
 *
 * In memory there is one entry for each destination that has rows waiting. The
 * table is the truth; the entries are read from it when the dispatcher starts.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/deferral.h"
#include "bgworker/transaction.h"
#include "src/deferred.h"
#include "src/settings.h"
#include "src/shared.h"

/* Messages returned in one transaction. */
#define RETURN_LIMIT	1000

/* What becomes of a destination that has refused a message. */
typedef enum BlockedState
{
	BLOCKED_WAITING,			/* until the head is due */
	BLOCKED_PROBING,			/* the head was returned, its window is under
								 * way */
	BLOCKED_DRAINING			/* the probe went through: return the rest */
} BlockedState;

typedef struct Blocked
{
	struct Blocked *next;
	char	   *dest;
	BlockedState state;
	int64		head;			/* lowest id that waits */
	int64		waiting;		/* how many do */
	TimestampTz due;			/* when the head is to be tried again */
	TimestampTz at;				/* when the head was enqueued */
} Blocked;

static MemoryContext context;
static Blocked *all_blocked;

static Blocked *find_blocked(const text *dest);
static Blocked *get_blocked(const text *dest);
static void read_head(Blocked *blocked);
static void remove_unblocked(void);
static void insert(const Message *message, int slot, int attempts, const char *error, TimestampTz next_at);
static int64 return_some(Blocked *blocked, int limit);
static void return_row(HeapTuple row, TupleDesc columns);
static void report(const char *error);

/* Reads what waits. Needs an open transaction. */
void
deferral_load(void)
{
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox deferral", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	all_blocked = NULL;

	SPI_connect();
	if (SPI_execute("SELECT dest, count(*) FROM outbox.deferred WHERE state = 'waiting' GROUP BY dest", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.deferred");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bool		isnull;
		Blocked    *blocked = get_blocked(DatumGetTextPP(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull)));

		blocked->waiting = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
	}
	SPI_finish();

	for (Blocked *blocked = all_blocked; blocked; blocked = blocked->next)
		read_head(blocked);
	report(NULL);
}

/*
 * Whether a row of the log that may have been read before is not to be sent,
 * because it is kept here or was returned as another row. Needs an open
 * transaction.
 */
bool
deferral_leaves_out(const Message *message)
{
	FullTransactionId returned_tx;

	return deferred_find(message->id, &returned_tx) &&
		!FullTransactionIdEquals(returned_tx, message->tx);
}

/* Whether a message must wait behind another one of its destination. */
bool
deferral_diverts(const Message *message)
{
	Blocked    *blocked = all_blocked ? find_blocked(message->dest) : NULL;

	return blocked && blocked->waiting > 0 && blocked->head < message->id;
}

/*
 * Keeps a message that waits behind another one. The caller commits, with a
 * flush, before it sends any chunk whose fence passes the message.
 */
void
deferral_divert(const Message *message, int slot)
{
	Blocked    *blocked = find_blocked(message->dest);

	insert(message, slot, 0, NULL, GetCurrentTimestamp());
	blocked->waiting++;
	report(NULL);
}

/*
 * Keeps a message that Redis refused; the same holds for the commit. Its
 * destination is tried again after outbox.retry_delay.
 */
void
deferral_refused(const Message *message, int slot, const char *error)
{
	Blocked    *blocked = get_blocked(message->dest);

	insert(message, slot, 1, error,
		   TimestampTzPlusMilliseconds(GetCurrentTimestamp(), outbox_retry_delay));
	blocked->waiting++;
	read_head(blocked);
	if (blocked->state == BLOCKED_WAITING && blocked->waiting == 1)
		ereport(LOG, (errmsg("outbox: destination \"%s\" refuses messages: %s", blocked->dest, error)));
	blocked->state = BLOCKED_WAITING;
	report(error);
}

/*
 * Returns to the log what is due. Only when no window is unpublished, and
 * right before the next one is opened. Says whether anything was returned.
 */
bool
deferral_return_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		returned = 0;

	if (deferral_ms_until_due() > 0 || !transaction_begin("returning deferred messages"))
		return false;
	for (Blocked *blocked = all_blocked; blocked; blocked = blocked->next)
	{
		if (blocked->state == BLOCKED_WAITING && blocked->due <= now)
		{
			returned += return_some(blocked, 1);
			blocked->state = BLOCKED_PROBING;
		}
		else if (blocked->state == BLOCKED_DRAINING)
			returned += return_some(blocked, RETURN_LIMIT);
	}
	transaction_commit();
	remove_unblocked();
	report(NULL);
	return returned > 0;
}

/* Every window has been published: a probe that was under way went through. */
void
deferral_window_published(void)
{
	for (Blocked *blocked = all_blocked; blocked; blocked = blocked->next)
	{
		if (blocked->state == BLOCKED_PROBING)
		{
			blocked->state = BLOCKED_DRAINING;
			ereport(LOG, (errmsg("outbox: destination \"%s\" accepts messages again", blocked->dest)));
		}
	}
	remove_unblocked();
}

/* How long until deferral_return_due() has something to do; -1 = for ever. */
long
deferral_ms_until_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long		ms = -1;

	for (Blocked *blocked = all_blocked; blocked; blocked = blocked->next)
	{
		long		left;

		if (blocked->state == BLOCKED_PROBING || blocked->waiting == 0)
			continue;
		left = blocked->state == BLOCKED_DRAINING ? 0 :
			TimestampDifferenceMilliseconds(now, blocked->due);
		ms = ms < 0 ? left : Min(ms, left);
	}
	return ms < 0 ? PG_INT32_MAX : ms;
}

/* Removes the tombstones of a log slot that is being emptied. */
void
deferral_forget_slot(int slot)
{
	(void) transaction_execute("DELETE FROM outbox.deferred WHERE state = 'returned' AND log_slot = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(slot)}, NULL);
}

static Blocked *
find_blocked(const text *dest)
{
	for (Blocked *blocked = all_blocked; blocked; blocked = blocked->next)
	{
		if (strlen(blocked->dest) == VARSIZE_ANY_EXHDR(dest) &&
			memcmp(blocked->dest, VARDATA_ANY(dest), VARSIZE_ANY_EXHDR(dest)) == 0)
			return blocked;
	}
	return NULL;
}

static Blocked *
get_blocked(const text *dest)
{
	Blocked    *blocked = find_blocked(dest);

	if (blocked == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(context);

		blocked = palloc0(sizeof(Blocked));
		blocked->dest = text_to_cstring(dest);
		blocked->next = all_blocked;
		all_blocked = blocked;
		MemoryContextSwitchTo(caller);
	}
	return blocked;
}

/* Reads which message of a destination waits at its head, if any does. */
static void
read_head(Blocked *blocked)
{
	SPI_connect();
	if (SPI_execute_with_args("SELECT id, next_at, at FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 "
							  "ORDER BY id LIMIT 1",
							  1, (Oid[]) {TEXTOID}, (Datum[]) {CStringGetTextDatum(blocked->dest)},
							  NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.deferred");
	if (SPI_processed > 0)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		bool		isnull;

		blocked->head = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		blocked->due = DatumGetTimestampTz(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
		blocked->at = DatumGetTimestampTz(SPI_getbinval(row, SPI_tuptable->tupdesc, 3, &isnull));
	}
	SPI_finish();
}

static void
remove_unblocked(void)
{
	Blocked   **link = &all_blocked;

	while (*link)
	{
		Blocked    *blocked = *link;

		if (blocked->waiting == 0 && blocked->state != BLOCKED_PROBING)
		{
			*link = blocked->next;
			pfree(blocked->dest);
			pfree(blocked);
		}
		else
			link = &blocked->next;
	}
}

/* A row that comes back a second time replaces its tombstone. */
static void
insert(const Message *message, int slot, int attempts, const char *error, TimestampTz next_at)
{
	Datum		values[] = {
		Int64GetDatum(message->id),
		UUIDPGetDatum(&message->key),
		PointerGetDatum(message->message_id),
		PointerGetDatum(message->dest),
		PointerGetDatum(message->cause),
		TimestampTzGetDatum(message->at),
		PointerGetDatum(message->headers),
		PointerGetDatum(message->body),
		Int32GetDatum(slot),
		Int32GetDatum(attempts),
		TimestampTzGetDatum(next_at),
		error ? CStringGetTextDatum(error) : (Datum) 0
	};
	Oid			types[] = {
		INT8OID, UUIDOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID,
		JSONBOID, BYTEAOID, INT4OID, INT4OID, TIMESTAMPTZOID, TEXTOID
	};
	char		nulls[] = "            ";

	nulls[1] = message->has_key ? ' ' : 'n';
	nulls[4] = message->cause ? ' ' : 'n';
	nulls[6] = message->headers ? ' ' : 'n';
	nulls[11] = error ? ' ' : 'n';

	if (transaction_execute("UPDATE outbox.deferred SET state = 'waiting', returned_tx = NULL, "
							"attempts = attempts + $2, next_at = $3, "
							"last_error = coalesce($4, last_error), "
							"last_attempt = CASE WHEN $2 > 0 THEN clock_timestamp() ELSE last_attempt END, "
							"first_attempt = coalesce(first_attempt, CASE WHEN $2 > 0 THEN clock_timestamp() END) "
							"WHERE id = $1",
							4, (Oid[]) {INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID},
							(Datum[]) {values[0], values[9], values[10], values[11]},
							(char[]) {' ', ' ', ' ', nulls[11], '\0'}) > 0)
		return;

	(void) transaction_execute("INSERT INTO outbox.deferred (id, key, message_id, dest, cause, at, headers, body, "
							   "log_slot, state, attempts, next_at, last_error, first_attempt, last_attempt) "
							   "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'waiting', $10, $11, $12, "
							   "CASE WHEN $10 > 0 THEN clock_timestamp() END, CASE WHEN $10 > 0 THEN clock_timestamp() END)",
							   12, types, values, nulls);
}

/* Returns the first rows of a destination to the log, and notes their head. */
static int64
return_some(Blocked *blocked, int limit)
{
	int64		returned;

	SPI_connect();
	if (SPI_execute_with_args("UPDATE outbox.deferred d SET state = 'returned', returned_tx = pg_current_xact_id() "
							  "FROM (SELECT id FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 ORDER BY id LIMIT $2) first "
							  "WHERE d.id = first.id "
							  "RETURNING d.id, d.key, d.message_id, d.dest, d.cause, d.at, d.headers, d.body",
							  2, (Oid[]) {TEXTOID, INT4OID},
							  (Datum[]) {CStringGetTextDatum(blocked->dest), Int32GetDatum(limit)},
							  NULL, false, 0) != SPI_OK_UPDATE_RETURNING)
		elog(ERROR, "could not return deferred messages");
	returned = (int64) SPI_processed;
	for (int64 i = 0; i < returned; i++)
		return_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_finish();
	blocked->waiting -= returned;
	read_head(blocked);
	return returned;
}

static void
return_row(HeapTuple row, TupleDesc columns)
{
	Message		message = {0};
	Datum		values[8];
	bool		isnull[8];

	heap_deform_tuple(row, columns, values, isnull);
	message.id = DatumGetInt64(values[0]);
	message.has_key = !isnull[1];
	if (message.has_key)
		message.key = *DatumGetUUIDP(values[1]);
	message.message_id = DatumGetTextPP(values[2]);
	message.dest = DatumGetTextPP(values[3]);
	message.cause = isnull[4] ? NULL : DatumGetTextPP(values[4]);
	message.at = DatumGetTimestampTz(values[5]);
	message.headers = isnull[6] ? NULL : DatumGetJsonbP(values[6]);
	message.body = DatumGetByteaPP(values[7]);
	log_append(&message);
}

/* Tells the views how many wait, and why if that is news. */
static void
report(const char *error)
{
	DatabaseShared *shared = shared_mine();
	int64		waiting = 0;
	TimestampTz oldest = 0;

	for (Blocked *blocked = all_blocked; blocked; blocked = blocked->next)
	{
		waiting += blocked->waiting;
		if (blocked->waiting > 0 && (oldest == 0 || blocked->at < oldest))
			oldest = blocked->at;
	}
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.deferred = waiting;
	shared->report.deferred_oldest = oldest;
	if (error)
		strlcpy(shared->report.deferred_error, error, sizeof(shared->report.deferred_error));
	LWLockRelease(shared->lock);
}
