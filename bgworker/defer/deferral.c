/*
 * deferral.c
 *		Keeps what cannot be sent now, and brings it back in order.
 *
 * Three reasons: the message is scheduled for later; its destination refused
 * it; its destination is paused or has an earlier message waiting here, and
 * order must be kept. All other destinations go on. Whoever makes a batch asks
 * here for each message. What a batch leaves out is committed to
 * outbox.deferred before any batch is sent whose fence passes it, so a crash
 * at any point finds it either ahead of the fence in the log or here.
 *
 *	 scheduled --(its time)--> returned
 *	 waiting --(due: first one as a probe, then the rest)--> returned
 *	 waiting --(outbox.max_attempts refusals)--> dead --(outbox_retry)--> waiting
 *	 dead --(outbox_discard)--> discarded
 *	 returned --(refused or deferred once more)--> waiting
 *
 * Due messages go back to the log with their original id, by the ordinary way
 * out, and only when no window is unpublished: then they sort before all that
 * came later. A row stays here as a tombstone until the log segment of its last
 * original is emptied: whoever reads a window again leaves out the originals,
 * and sends the row that was returned last.
 *
 * In memory there is one entry for each destination that must not be sent to
 * (blocked.c). The table is the truth; the entries are read from it when the
 * dispatcher starts, and when somebody else has changed it.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "bgworker/defer/blocked.h"
#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/limits.h"
#include "src/log/deferred.h"
#include "src/problem.h"
#include "src/settings.h"
#include "src/shared.h"

/* Returned in one transaction: messages; probes; bytes after which no further one is. */
#define RETURN_LIMIT	1000
#define PROBE_LIMIT		100
#define RETURN_BYTES	1048576

/*
 * Probes that are refused may take one part in so many of our time: with
 * thousands of destinations that refuse there is always one due. How long they
 * took is not believed beyond a limit: Redis may have been away meanwhile.
 */
#define PROBE_SHARE		10
#define LONGEST_ROUND	(500 * INT64CONST(1000))

/* Returns the first messages of a query to the log, as many as have RETURN_BYTES. */
#define RETURN_FIRST_OF(due) \
	"UPDATE outbox.deferred d SET state = 'returned', returned_tx = pg_current_xact_id() " \
	"FROM (SELECT id, sum(size) OVER (ORDER BY place) - size AS bytes_before " \
	"FROM (SELECT id, octet_length(body) AS size, row_number() OVER () AS place FROM (" due ") due) sized) first " \
	"WHERE d.id = first.id AND first.bytes_before < " CppAsString2(RETURN_BYTES) " " \
	"RETURNING d.id, d.key, d.message_id, d.dest, d.cause, d.at, d.headers, d.body"

static Statement return_probes = {
	RETURN_FIRST_OF("SELECT id, body FROM outbox.deferred WHERE state = 'waiting' AND id = ANY ($1) ORDER BY id"),
	1, {INT8ARRAYOID}
};
static Statement return_waiting = {
	RETURN_FIRST_OF("SELECT id, body FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 ORDER BY id LIMIT $2"),
	2, {TEXTOID, INT4OID}
};
static Statement return_scheduled = {
	RETURN_FIRST_OF("SELECT id, body FROM outbox.deferred WHERE state = 'scheduled' AND next_at <= clock_timestamp() ORDER BY next_at LIMIT $1"),
	1, {INT4OID}
};

/* Writes a message anew that has a tombstone; its original is a younger one then. */
static Statement keep_again = {
	"UPDATE outbox.deferred SET log_segment = $2, state = $3, returned_tx = NULL, "
	"attempts = greatest(attempts, $4), next_at = $5, last_error = coalesce($6, last_error), "
	"first_attempt = coalesce(first_attempt, CASE WHEN $6 IS NOT NULL THEN clock_timestamp() END), "
	"last_attempt = CASE WHEN $6 IS NOT NULL THEN clock_timestamp() ELSE last_attempt END WHERE id = $1",
	6, {INT8OID, INT4OID, TEXTOID, INT4OID, TIMESTAMPTZOID, TEXTOID}
};

static Statement find_head = {
	"SELECT id, next_at, at FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 ORDER BY id LIMIT 1",
	1, {TEXTOID}
};

static TimestampTz scheduled_due;	/* when the next scheduled message is; 0 =
									 * there is none */
static int64 scheduled;			/* how many there are */
static int64 dead;
static int64 settled;			/* how many wait that no unpublished window
								 * holds */
static TimestampTz probes_began;	/* by clock_now(); 0 = none is under way */
static bool probe_refused;
static TimestampTz next_probes; /* by clock_now(): none before */
static int64 being_returned;	/* the message that is; 0 = none */

static bool try_return(TimestampTz now, int64 *returned, char *error, size_t size);
static void give_up_unreturnable(const char *error);
static void block_paused(const char *dest);
static void load_waiting(void);
static void load_counts(void);
static void read_head(Blocked *blocked);
static void add_waiting(Blocked *blocked, const Message *message, TimestampTz due);
static bool must_wait(const Message *message);
static void keep(const Message *message, int segment, DeferredState state,
				 int attempts, TimestampTz next_at, const char *error);
static TimestampTz next_attempt(int attempts);
static void note_probes_ended(void);
static int64 probe_due(TimestampTz now);
static int64 drain(void);
static int64 release_scheduled(void);
static int64 return_rows(Statement *statement, Datum *values, void (*visit) (const Message *message), int64 *bytes);
static void return_row(HeapTuple row, TupleDesc columns, Message *message);
static void note_probe(const Message *message);
static void report(const char *error);

/* Reads what is kept, and who is paused. Needs an open transaction. */
void
deferral_load(void)
{
	blocked_reset();
	load_waiting();
	destination_each_paused(block_paused);
	load_counts();
	settled = blocked_waiting();
	report(NULL);
}

/*
 * The same in a transaction of its own, after one that kept something back was
 * rolled back. False if the extension is being dropped.
 */
bool
deferral_reload(void)
{
	deferred_abort_append();
	if (!transaction_begin("reading what is deferred"))
	{
		pg_atomic_write_u32(&shared_mine()->reload, 1);
		return false;
	}
	deferral_load();
	transaction_commit();
	return true;
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
 * wait behind another one. The caller ends with deferred_end_append() and
 * commits, with a flush, before it sends any batch whose fence passes the message.
 */
bool
deferral_keeps_back(const Message *message, int segment)
{
	TimestampTz now;

	if (message->deliver_at == 0 && !must_wait(message))
		return false;

	now = GetCurrentTimestamp();
	if (message->deliver_at > now)
	{
		keep(message, segment, DEFERRED_SCHEDULED, 0, message->deliver_at, NULL);
		KILL_POINT("scheduled_written");
		scheduled++;
		if (scheduled_due == 0 || message->deliver_at < scheduled_due)
			scheduled_due = message->deliver_at;
	}
	else if (must_wait(message))
	{
		Blocked    *blocked = blocked_find(message->dest);

		keep(message, segment, DEFERRED_WAITING, 0, now, NULL);
		KILL_POINT("deferred_written");
		blocked_take(blocked);
		add_waiting(blocked, message, now);
		blocked_file(blocked);
	}
	else
		return false;
	report(NULL);
	return true;
}

/*
 * Keeps a message that Redis refused; the same holds for the caller. It is
 * tried again after a while, or is dead after outbox.max_attempts.
 */
void
deferral_refused(const Message *message, int segment, const char *error)
{
	FullTransactionId ignored;
	int			attempts = 0;
	Blocked    *blocked;
	char		dest[MAX_NAME_BYTES + 1];

	(void) deferred_find(message->id, &ignored, &attempts);
	attempts++;
	destination_key(message->dest, dest);
	blocked = blocked_open(dest);
	if (attempts == 1 && blocked->waiting == 0)
		ereport(LOG, (errmsg("outbox: destination \"%s\" refuses messages: %s", dest, error)));
	probe_refused |= attempts > 1;

	if (attempts >= outbox_max_attempts)
	{
		keep(message, segment, DEFERRED_DEAD, attempts, GetCurrentTimestamp(), error);
		dead++;
		ereport(LOG, (errmsg("outbox: message \"%s\" for destination \"%s\" is dead after %d attempts: %s",
							 text_to_cstring(message->message_id), dest, attempts, error)));
	}
	else
	{
		TimestampTz due = next_attempt(attempts);

		keep(message, segment, DEFERRED_WAITING, attempts, due, error);
		add_waiting(blocked, message, due);
	}
	blocked->state = BLOCKED_WAITING;
	blocked_file(blocked);
	report(error);
}

/*
 * Gives up a message that cannot be read, so that it can neither be sent nor be
 * kept as a whole. What is left of it stays in the log for a while.
 */
void
deferral_unreadable(const Message *message, int segment, const char *error)
{
	char		dest[MAX_NAME_BYTES + 1];

	destination_key(message->dest, dest);
	keep(message, segment, DEFERRED_DEAD, 0, GetCurrentTimestamp(), error);
	dead++;
	ereport(LOG, (errmsg("outbox: message \"%s\" for destination \"%s\" is dead, it cannot be read: %s",
						 text_to_cstring(message->message_id), dest, error)));
	report(NULL);
}

/*
 * Returns to the log what is due, but not more than fits in a window that
 * holds up the others only for a moment. Only when no window is unpublished,
 * and right before the next one is opened. Says whether anything was returned.
 */
bool
deferral_return_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		returned;
	char		error[256];

	if (deferral_ms_until_due() > 0 || !transaction_begin("returning deferred messages"))
		return false;
	if (!try_return(now, &returned, error, sizeof(error)))
	{
		give_up_unreturnable(error);
		return false;
	}
	if (returned > 0)
		KILL_POINT("return_written");
	transaction_commit();
	if (returned > 0)
		KILL_POINT("return_committed");
	settled = blocked_waiting();
	report(NULL);
	return returned > 0;
}

/* False: a message could not be returned, and the transaction is rolled back. */
static bool
try_return(TimestampTz now, int64 *returned, char *error, size_t size)
{
	volatile bool done = true;

	being_returned = 0;
	PG_TRY();
	{
		*returned = probe_due(now) + drain();
		if (scheduled_due != 0 && scheduled_due <= now)
			*returned += release_scheduled();
	}
	PG_CATCH();
	{
		if (being_returned == 0)
			PG_RE_THROW();
		transaction_abort_for_message(error, size);
		done = false;
	}
	PG_END_TRY();
	return done;
}

/* What is damaged in outbox.deferred itself stays there as it is. */
static void
give_up_unreturnable(const char *error)
{
	if (transaction_begin("giving up a message"))
	{
		(void) transaction_execute("UPDATE outbox.deferred SET state = 'dead', last_error = $2 WHERE id = $1",
								   2, (Oid[]) {INT8OID, TEXTOID},
								   (Datum[]) {Int64GetDatum(being_returned), CStringGetTextDatum(error)}, NULL);
		transaction_commit();
	}
	(void) deferral_reload();
	ereport(LOG, (errmsg("outbox: deferred message %lld is dead, it cannot be read: %s", (long long) being_returned, error)));
}

/* Another window is about to count as published: what it left behind waits here. */
void
deferral_settle(void)
{
	if (settled == blocked_waiting())
		return;
	settled = blocked_waiting();
	report(NULL);
}

/* Every window has been published: a probe that was under way went through. */
void
deferral_window_published(void)
{
	Blocked    *blocked;

	note_probes_ended();
	while ((blocked = blocked_next_probing()) != NULL)
	{
		KILL_POINT("probe_passed");
		ereport(LOG, (errmsg("outbox: destination \"%s\" accepts messages", blocked->dest)));
		blocked_take(blocked);
		blocked->state = BLOCKED_DRAINING;
		blocked_file(blocked);
	}
}

/* How long until deferral_return_due() has something to do. */
long
deferral_ms_until_due(void)
{
	const Blocked *blocked = blocked_next_due();
	long		ms = PG_INT32_MAX;
	TimestampTz now;

	if (blocked_draining() > 0)
		return 0;
	if (blocked == NULL && scheduled_due == 0)
		return ms;
	now = GetCurrentTimestamp();
	if (blocked)
		ms = Max(TimestampDifferenceMilliseconds(now, blocked->due),
				 TimestampDifferenceMilliseconds(clock_now(), next_probes));
	if (scheduled_due != 0)
		ms = Min(ms, TimestampDifferenceMilliseconds(now, scheduled_due));
	return ms;
}

/* Removes the tombstones of a log segment that is being emptied. */
void
deferral_forget_segment(int segment)
{
	(void) transaction_execute("DELETE FROM outbox.deferred WHERE state IN ('returned', 'discarded') AND log_segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(segment)}, NULL);
}

static void
block_paused(const char *dest)
{
	Blocked    *blocked = blocked_open(dest);

	blocked->paused = true;
	blocked_file(blocked);
}

static void
load_waiting(void)
{
	SPITupleTable *rows;
	uint64		n;

	SPI_connect();
	if (SPI_execute("SELECT dest, count(*) FROM outbox.deferred WHERE state = 'waiting' GROUP BY dest", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.deferred");
	rows = SPI_tuptable;
	n = SPI_processed;
	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;
		Blocked    *blocked = blocked_open(SPI_getvalue(rows->vals[i], rows->tupdesc, 1));

		blocked->waiting = DatumGetInt64(SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull));
		read_head(blocked);
		blocked_file(blocked);
	}
	SPI_finish();
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
	if (blocked->waiting == 0)
		return;
	SPI_connect();
	if (transaction_run(&find_head, (Datum[]) {CStringGetTextDatum(blocked->dest)}, NULL) > 0)
	{
		HeapTuple	row = SPI_tuptable->vals[0];
		bool		isnull;

		blocked->head = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		blocked->due = DatumGetTimestampTz(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
		blocked->at = DatumGetTimestampTz(SPI_getbinval(row, SPI_tuptable->tupdesc, 3, &isnull));
	}
	SPI_finish();
}

/* Another message of a destination waits, maybe before all others. */
static void
add_waiting(Blocked *blocked, const Message *message, TimestampTz due)
{
	if (blocked->waiting == 0 || message->id < blocked->head)
	{
		blocked->head = message->id;
		blocked->due = due;
		blocked->at = message->at;
	}
	blocked->waiting++;
}

/* Whether a message must wait behind another one, or for outbox_resume(). */
static bool
must_wait(const Message *message)
{
	const Blocked *blocked = blocked_find(message->dest);

	return blocked &&
		(blocked->paused || (blocked->waiting > 0 && blocked->head < message->id));
}

/* Writes the row of a message. */
static void
keep(const Message *message, int segment, DeferredState state,
	 int attempts, TimestampTz next_at, const char *error)
{
	FullTransactionId returned_tx;
	int			before;
	bool		found = deferred_find(message->id, &returned_tx, &before);

	if (found && FullTransactionIdEquals(returned_tx, message->tx))
	{
		SPI_connect();
		(void) transaction_run(&keep_again,
							   (Datum[]) {
								   Int64GetDatum(message->id), Int32GetDatum(segment),
								   CStringGetTextDatum(deferred_state_name(state)), Int32GetDatum(attempts),
								   TimestampTzGetDatum(next_at), error ? CStringGetTextDatum(error) : (Datum) 0
							   }, error ? NULL : "     n");
		SPI_finish();
	}
	else if (found)
	{
		/* Another message had that id, as a restore may give it: it must not get lost. */
		Message		other = *message;

		other.id = log_next_id();
		deferred_append(&other, segment, state, attempts, next_at, error);
	}
	else
		deferred_append(message, segment, state, attempts, next_at, error);
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

/* If any was refused, those that are due next wait for a while. */
static void
note_probes_ended(void)
{
	TimestampTz now = clock_now();

	if (probes_began == 0)
		return;
	next_probes = probe_refused ? now + (PROBE_SHARE - 1) * Min(now - probes_began, LONGEST_ROUND) : 0;
	probes_began = 0;
}

/* Returns the heads that are due, as probes, and notes which ones are first then. */
static int64
probe_due(TimestampTz now)
{
	Blocked    *chosen[PROBE_LIMIT];
	Datum		ids[PROBE_LIMIT];
	int			n = 0;
	int64		returned;

	if (clock_now() < next_probes)
		return 0;
	while (n < PROBE_LIMIT && (chosen[n] = blocked_next_due()) != NULL && chosen[n]->due <= now)
	{
		blocked_take(chosen[n]);
		ids[n] = Int64GetDatum(chosen[n]->head);
		n++;
	}
	if (n == 0)
		return 0;
	probes_began = clock_now();
	probe_refused = false;
	returned = return_rows(&return_probes,
						   (Datum[]) {PointerGetDatum(construct_array(ids, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE))},
						   note_probe, NULL);
	for (int i = 0; i < n; i++)
	{
		if (chosen[i]->state == BLOCKED_PROBING)
			read_head(chosen[i]);
		blocked_file(chosen[i]);
	}
	return returned;
}

static void
note_probe(const Message *message)
{
	Blocked    *blocked = blocked_find(message->dest);

	blocked->state = BLOCKED_PROBING;
	blocked->waiting--;
}

/* Returns the first messages of destinations that accept them again, each in its turn. */
static int64
drain(void)
{
	int64		returned = 0;
	int64		bytes = 0;

	for (int64 turns = blocked_draining(); turns > 0 && returned < RETURN_LIMIT && bytes < RETURN_BYTES; turns--)
	{
		Blocked    *blocked = blocked_next_draining();
		int64		first;

		blocked_take(blocked);
		first = return_rows(&return_waiting,
							(Datum[]) {CStringGetTextDatum(blocked->dest), Int32GetDatum(RETURN_LIMIT - returned)},
							NULL, &bytes);
		blocked->waiting -= first;
		read_head(blocked);
		blocked_file(blocked);
		returned += first;
	}
	return returned;
}

/* Returns scheduled messages whose time has come, and notes when the next one is due. */
static int64
release_scheduled(void)
{
	int64		returned = return_rows(&return_scheduled, (Datum[]) {Int32GetDatum(RETURN_LIMIT)}, NULL, NULL);
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

/* Returns the rows that a statement names to the log; adds up their bytes. */
static int64
return_rows(Statement *statement, Datum *values, void (*visit) (const Message *message), int64 *bytes)
{
	SPITupleTable *rows;
	int64		returned;

	SPI_connect();
	returned = transaction_run(statement, values, NULL);
	rows = SPI_tuptable;
	for (int64 i = 0; i < returned; i++)
	{
		Message		message;

		return_row(rows->vals[i], rows->tupdesc, &message);
		being_returned = 0;
		if (bytes)
			*bytes += toast_raw_datum_size(PointerGetDatum(message.body));
		if (visit)
			visit(&message);
	}
	SPI_finish();
	return returned;
}

static void
return_row(HeapTuple row, TupleDesc columns, Message *message)
{
	Datum		values[8];
	bool		isnull[8];

	memset(message, 0, sizeof(*message));
	heap_deform_tuple(row, columns, values, isnull);
	message->id = being_returned = DatumGetInt64(values[0]);
	message->has_key = !isnull[1];
	if (message->has_key)
		message->key = *DatumGetUUIDP(values[1]);
	message->message_id = DatumGetTextPP(values[2]);
	message->dest = DatumGetTextPP(values[3]);
	message->cause = isnull[4] ? NULL : DatumGetTextPP(values[4]);
	message->at = DatumGetTimestampTz(values[5]);
	message->headers = isnull[6] ? NULL : DatumGetJsonbP(values[6]);
	message->body = (bytea *) DatumGetPointer(values[7]);
	log_append(message);
	log_append_receipt_of(message);
}

/* Tells the views how much is kept, and why if that is news. */
static void
report(const char *error)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.deferred = blocked_waiting();
	shared->report.deferred_settled = settled;
	shared->report.deferred_oldest = blocked_oldest();
	shared->report.scheduled = scheduled;
	shared->report.dead = dead;
	if (error)
		strlcpy(shared->report.deferred_error, error, sizeof(shared->report.deferred_error));
	else if (blocked_waiting() == 0)
		shared->report.deferred_error[0] = '\0';
	LWLockRelease(shared->lock);
	problem_hold(PROBLEM_PAUSED, destination_all_paused());
	problem_hold(PROBLEM_DEAD, dead > 0);
	problem_hold(PROBLEM_DESTINATION, blocked_waiting() > 0);
}
