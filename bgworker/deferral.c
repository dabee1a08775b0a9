/*
 * deferral.c
 *		Keeps what cannot be sent now, and brings it back in order.
 *
 * Three reasons: the message is scheduled for later; its destination refused
 * it; its destination is paused or has an earlier message waiting here, and
 * order must be kept. All other destinations go on. Whoever makes a chunk asks
 * here for each message. What a chunk leaves out is committed to
 * outbox.deferred before any chunk is sent whose fence passes it, so a crash
 * at any point finds it either ahead of the fence in the log or here.
 *
 *	 scheduled --(its time)--> returned
 *	 waiting --(due: first one as a probe, then the rest)--> returned
 *	 waiting --(outbox.max_attempts refusals)--> dead --(outbox_retry)--> waiting
 *	 dead --(outbox_discard)--> discarded
 *	 returned --(refused or diverted once more)--> waiting
 *
 * Due messages go back to the log with their original id, by the ordinary way
 * out, and only when no window is unpublished: then they sort before all that
 * came later. A row stays here as a tombstone until the log slot of its last
 * original is emptied: whoever reads a window again leaves out the originals,
 * and sends the row that was returned last.
 *
 * In memory there is one entry for each destination that must not be sent to.
 * The table is the truth; the entries are read from it when the dispatcher
 * starts, and when somebody else has changed it.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/deferral.h"
#include "bgworker/destination.h"
#include "bgworker/transaction.h"
#include "src/deferred.h"
#include "src/kill_point.h"
#include "src/settings.h"
#include "src/shared.h"

/* Messages returned in one transaction, and bytes after which no further one is. */
#define RETURN_LIMIT	1000
#define RETURN_BYTES	(1024 * 1024)

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
	char		dest[DEST_BYTES + 1];	/* hash key */
	BlockedState state;
	bool		paused;			/* by outbox_pause(): nothing is due */
	int64		waiting;		/* how many wait */
	int64		head;			/* lowest id of them */
	TimestampTz due;			/* when the head is to be tried again */
	TimestampTz at;				/* when the head was enqueued */
} Blocked;

static MemoryContext context;
static HTAB *all_blocked;
static TimestampTz scheduled_due;	/* when the next scheduled message is; 0 =
									 * there is none */
static int64 scheduled;			/* how many there are */
static int64 dead;

static Blocked *find_blocked(const text *dest);
static Blocked *get_blocked(const char *dest);
static void block_paused(const char *dest);
static void load_waiting(void);
static void load_counts(void);
static void read_head(Blocked *blocked);
static bool must_wait(const Message *message);
static void remove_unblocked(void);
static void keep(const Message *message, int slot, DeferredState state,
				 int attempts, TimestampTz next_at, const char *error);
static TimestampTz next_attempt(int attempts);
static int64 return_waiting(Blocked *blocked, int limit);
static int64 return_scheduled(void);
static int64 return_rows(const char *query, int nargs, Oid *types, Datum *values);
static void return_row(HeapTuple row, TupleDesc columns);
static void report(const char *error);

/* Reads what is kept, and who is paused. Needs an open transaction. */
void
deferral_load(void)
{
	HASHCTL		control = {.keysize = DEST_BYTES + 1, .entrysize = sizeof(Blocked)};

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox deferral", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	control.hcxt = context;
	all_blocked = hash_create("outbox blocked destinations", 16, &control,
							  HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	load_waiting();
	destination_each_paused(block_paused);
	load_counts();
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
	int			attempts;

	return deferred_find(message->id, &returned_tx, &attempts) &&
		!FullTransactionIdEquals(returned_tx, message->tx);
}

/*
 * Keeps a message back if it is not to be sent now: it is scheduled, or must
 * wait behind another one. The caller commits, with a flush, before it sends
 * any chunk whose fence passes the message.
 */
bool
deferral_keeps_back(const Message *message, int slot)
{
	TimestampTz now;

	if (message->deliver_at == 0 && !must_wait(message))
		return false;

	now = GetCurrentTimestamp();
	if (message->deliver_at > now)
	{
		keep(message, slot, DEFERRED_SCHEDULED, 0, message->deliver_at, NULL);
		KILL_POINT("scheduled_written");
		scheduled++;
		if (scheduled_due == 0 || message->deliver_at < scheduled_due)
			scheduled_due = message->deliver_at;
	}
	else if (must_wait(message))
	{
		Blocked    *blocked = find_blocked(message->dest);

		keep(message, slot, DEFERRED_WAITING, 0, now, NULL);
		KILL_POINT("diverted_written");
		if (blocked->waiting++ == 0)
			read_head(blocked);
	}
	else
		return false;
	report(NULL);
	return true;
}

/*
 * Keeps a message that Redis refused; the same holds for the commit. It is
 * tried again after a while, or is dead after outbox.max_attempts.
 */
void
deferral_refused(const Message *message, int slot, const char *error)
{
	FullTransactionId ignored;
	int			attempts = 0;
	Blocked    *blocked;
	char		dest[DEST_BYTES + 1];

	(void) deferred_find(message->id, &ignored, &attempts);
	attempts++;
	destination_key(message->dest, dest);
	blocked = get_blocked(dest);
	if (attempts == 1 && blocked->waiting == 0)
		ereport(LOG, (errmsg("outbox: destination \"%s\" refuses messages: %s", dest, error)));

	if (attempts >= outbox_max_attempts)
	{
		keep(message, slot, DEFERRED_DEAD, attempts, GetCurrentTimestamp(), error);
		dead++;
		ereport(LOG, (errmsg("outbox: message \"%s\" for destination \"%s\" is dead after %d attempts: %s",
							 text_to_cstring(message->message_id), dest, attempts, error)));
	}
	else
	{
		keep(message, slot, DEFERRED_WAITING, attempts, next_attempt(attempts), error);
		blocked->waiting++;
	}
	read_head(blocked);
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
	HASH_SEQ_STATUS status;
	Blocked    *blocked;
	int64		returned = 0;

	if (deferral_ms_until_due() > 0 || !transaction_begin("returning deferred messages"))
		return false;
	hash_seq_init(&status, all_blocked);
	while ((blocked = hash_seq_search(&status)) != NULL)
	{
		if (blocked->paused || blocked->waiting == 0)
			continue;
		if (blocked->state == BLOCKED_WAITING && blocked->due <= now)
		{
			returned += return_waiting(blocked, 1);
			blocked->state = BLOCKED_PROBING;
		}
		else if (blocked->state == BLOCKED_DRAINING)
			returned += return_waiting(blocked, RETURN_LIMIT);
	}
	if (scheduled_due != 0 && scheduled_due <= now)
		returned += return_scheduled();
	if (returned > 0)
		KILL_POINT("return_written");
	transaction_commit();
	if (returned > 0)
		KILL_POINT("return_committed");
	remove_unblocked();
	report(NULL);
	return returned > 0;
}

/* Every window has been published: a probe that was under way went through. */
void
deferral_window_published(void)
{
	HASH_SEQ_STATUS status;
	Blocked    *blocked;

	if (hash_get_num_entries(all_blocked) == 0)
		return;
	hash_seq_init(&status, all_blocked);
	while ((blocked = hash_seq_search(&status)) != NULL)
	{
		if (blocked->state == BLOCKED_PROBING)
		{
			KILL_POINT("probe_passed");
			blocked->state = BLOCKED_DRAINING;
			ereport(LOG, (errmsg("outbox: destination \"%s\" accepts messages", blocked->dest)));
		}
	}
	remove_unblocked();
}

/* How long until deferral_return_due() has something to do. */
long
deferral_ms_until_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long		ms = PG_INT32_MAX;
	HASH_SEQ_STATUS status;
	Blocked    *blocked;

	if (scheduled_due != 0)
		ms = TimestampDifferenceMilliseconds(now, scheduled_due);
	if (hash_get_num_entries(all_blocked) == 0)
		return ms;
	hash_seq_init(&status, all_blocked);
	while ((blocked = hash_seq_search(&status)) != NULL)
	{
		if (blocked->paused || blocked->waiting == 0)
			continue;
		if (blocked->state == BLOCKED_DRAINING)
			ms = 0;
		else if (blocked->state == BLOCKED_WAITING)
			ms = Min(ms, TimestampDifferenceMilliseconds(now, blocked->due));
	}
	return ms;
}

/* Removes the tombstones of a log slot that is being emptied. */
void
deferral_forget_slot(int slot)
{
	(void) transaction_execute("DELETE FROM outbox.deferred WHERE state IN ('returned', 'discarded') AND log_slot = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(slot)}, NULL);
}

static Blocked *
find_blocked(const text *dest)
{
	char		key[DEST_BYTES + 1];

	if (hash_get_num_entries(all_blocked) == 0)
		return NULL;
	destination_key(dest, key);
	return hash_search(all_blocked, key, HASH_FIND, NULL);
}

static Blocked *
get_blocked(const char *dest)
{
	bool		found;
	Blocked    *blocked = hash_search(all_blocked, dest, HASH_ENTER, &found);

	if (!found)
	{
		blocked->state = BLOCKED_WAITING;
		blocked->paused = false;
		blocked->waiting = 0;
		blocked->head = 0;
		blocked->due = 0;
		blocked->at = 0;
	}
	return blocked;
}

static void
block_paused(const char *dest)
{
	get_blocked(dest)->paused = true;
}

static void
load_waiting(void)
{
	HASH_SEQ_STATUS status;
	Blocked    *blocked;

	SPI_connect();
	if (SPI_execute("SELECT dest, count(*) FROM outbox.deferred WHERE state = 'waiting' GROUP BY dest", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.deferred");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bool		isnull;

		blocked = get_blocked(SPI_getvalue(row, SPI_tuptable->tupdesc, 1));
		blocked->waiting = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
	}
	SPI_finish();

	hash_seq_init(&status, all_blocked);
	while ((blocked = hash_seq_search(&status)) != NULL)
		read_head(blocked);
}

/* Counts what is scheduled and dead, and when the first one is due. */
static void
load_counts(void)
{
	HeapTuple	row;
	bool		isnull;
	Datum		due;

	SPI_connect();
	if (SPI_execute("SELECT (SELECT count(*) FROM outbox.deferred WHERE state = 'scheduled'), "
					"(SELECT min(next_at) FROM outbox.deferred WHERE state = 'scheduled'), "
					"(SELECT count(*) FROM outbox.deferred WHERE state = 'dead')", true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.deferred");
	row = SPI_tuptable->vals[0];
	scheduled = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
	due = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);
	scheduled_due = isnull ? 0 : DatumGetTimestampTz(due);
	dead = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 3, &isnull));
	SPI_finish();
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

/* Whether a message must wait behind another one, or for outbox_resume(). */
static bool
must_wait(const Message *message)
{
	Blocked    *blocked = find_blocked(message->dest);

	return blocked &&
		(blocked->paused || (blocked->waiting > 0 && blocked->head < message->id));
}

static void
remove_unblocked(void)
{
	HASH_SEQ_STATUS status;
	Blocked    *blocked;

	hash_seq_init(&status, all_blocked);
	while ((blocked = hash_seq_search(&status)) != NULL)
	{
		if (blocked->waiting == 0 && !blocked->paused && blocked->state != BLOCKED_PROBING)
			(void) hash_search(all_blocked, blocked->dest, HASH_REMOVE, NULL);
	}
}

/*
 * Writes the row of a message. One that comes back replaces its tombstone, and
 * has a younger original then.
 */
static void
keep(const Message *message, int slot, DeferredState state,
	 int attempts, TimestampTz next_at, const char *error)
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
		CStringGetTextDatum(deferred_state_name(state)),
		Int32GetDatum(attempts),
		TimestampTzGetDatum(next_at),
		error ? CStringGetTextDatum(error) : (Datum) 0
	};
	Oid			types[] = {
		INT8OID, UUIDOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, JSONBOID,
		BYTEAOID, INT4OID, TEXTOID, INT4OID, TIMESTAMPTZOID, TEXTOID
	};
	char		nulls[] = "             ";

	nulls[1] = message->has_key ? ' ' : 'n';
	nulls[4] = message->cause ? ' ' : 'n';
	nulls[6] = message->headers ? ' ' : 'n';
	nulls[12] = error ? ' ' : 'n';
	(void) transaction_execute("INSERT INTO outbox.deferred AS d (id, key, message_id, dest, cause, at, headers, body, "
							   "log_slot, state, attempts, next_at, last_error, first_attempt, last_attempt) "
							   "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
							   "CASE WHEN $13 IS NOT NULL THEN clock_timestamp() END, "
							   "CASE WHEN $13 IS NOT NULL THEN clock_timestamp() END) "
							   "ON CONFLICT (id) DO UPDATE SET log_slot = excluded.log_slot, state = excluded.state, returned_tx = NULL, "
							   "attempts = greatest(d.attempts, excluded.attempts), next_at = excluded.next_at, "
							   "last_error = coalesce(excluded.last_error, d.last_error), "
							   "first_attempt = coalesce(d.first_attempt, excluded.first_attempt), "
							   "last_attempt = coalesce(excluded.last_attempt, d.last_attempt)",
							   lengthof(values), types, values, nulls);
}

/* Doubles the delay with each attempt; the jitter keeps many from coming at once. */
static TimestampTz
next_attempt(int attempts)
{
	double		delay = Min((double) outbox_retry_delay * pow(2, Min(attempts - 1, 30)),
							(double) outbox_retry_max_delay);

	delay *= 0.8 + 0.4 * pg_prng_double(&pg_global_prng_state);
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), (int64) delay);
}

/* Returns the first messages of a destination, and notes which one is first then. */
static int64
return_waiting(Blocked *blocked, int limit)
{
	int64		returned = return_rows("SELECT id, body FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 ORDER BY id LIMIT $2",
									   2, (Oid[]) {TEXTOID, INT4OID},
									   (Datum[]) {CStringGetTextDatum(blocked->dest), Int32GetDatum(limit)});

	blocked->waiting -= returned;
	read_head(blocked);
	return returned;
}

/* Returns scheduled messages whose time has come, and notes when the next one is due. */
static int64
return_scheduled(void)
{
	int64		returned = return_rows("SELECT id, body FROM outbox.deferred WHERE state = 'scheduled' AND next_at <= clock_timestamp() "
									   "ORDER BY next_at LIMIT $1",
									   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(RETURN_LIMIT)});
	bool		isnull;
	Datum		due;

	scheduled -= returned;
	SPI_connect();
	if (SPI_execute("SELECT next_at FROM outbox.deferred WHERE state = 'scheduled' ORDER BY next_at LIMIT 1", false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.deferred");
	scheduled_due = 0;
	if (SPI_processed > 0)
	{
		due = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		scheduled_due = DatumGetTimestampTz(due);
	}
	SPI_finish();
	return returned;
}

/* Returns the rows that a query names to the log. */
static int64
return_rows(const char *query, int nargs, Oid *types, Datum *values)
{
	int64		returned;
	char	   *sql = psprintf("UPDATE outbox.deferred d SET state = 'returned', returned_tx = pg_current_xact_id() "
							   "FROM (SELECT id, sum(size) OVER (ORDER BY place) - size AS bytes_before "
							   "FROM (SELECT id, octet_length(body) AS size, row_number() OVER () AS place FROM (%s) due) sized) first "
							   "WHERE d.id = first.id AND first.bytes_before < %d "
							   "RETURNING d.id, d.key, d.message_id, d.dest, d.cause, d.at, d.headers, d.body", query, RETURN_BYTES);

	SPI_connect();
	if (SPI_execute_with_args(sql, nargs, types, values, NULL, false, 0) != SPI_OK_UPDATE_RETURNING)
		elog(ERROR, "could not return deferred messages");
	returned = (int64) SPI_processed;
	for (int64 i = 0; i < returned; i++)
		return_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_finish();
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
	message.body = (bytea *) DatumGetPointer(values[7]);
	log_append(&message);
}

/* Tells the views how much is kept, and why if that is news. */
static void
report(const char *error)
{
	DatabaseShared *shared = shared_mine();
	HASH_SEQ_STATUS status;
	Blocked    *blocked;
	int64		waiting = 0;
	TimestampTz oldest = 0;

	hash_seq_init(&status, all_blocked);
	while ((blocked = hash_seq_search(&status)) != NULL)
	{
		waiting += blocked->waiting;
		if (blocked->waiting > 0 && (oldest == 0 || blocked->at < oldest))
			oldest = blocked->at;
	}
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.paused = destination_all_paused();
	shared->report.deferred = waiting;
	shared->report.deferred_oldest = oldest;
	shared->report.scheduled = scheduled;
	shared->report.dead = dead;
	if (error)
		strlcpy(shared->report.deferred_error, error, sizeof(shared->report.deferred_error));
	else if (waiting == 0)
		shared->report.deferred_error[0] = '\0';
	LWLockRelease(shared->lock);
}
