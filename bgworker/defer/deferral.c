/*
 * deferral.c
 *		Defers messages that cannot be sent now, and those that must wait behind them.
 *
 * There are four reasons: the message is scheduled for later; its destination
 * refused it; its destination is paused or has an earlier message waiting here,
 * and order must be kept; a dead message holds it back (held_by_dead.c). Other
 * destinations are not affected. page.c asks here for each message. What is
 * deferred is committed to outbox.deferred before any batch is sent whose fence
 * passes it, so after a crash at any point it is either ahead of the fence in
 * the log or here.
 *
 *	 scheduled --(its time)--> returned
 *	 waiting --(due: first one as a probe, then the rest)--> returned
 *	 waiting --(outbox.max_attempts refusals)--> dead --(outbox_retry)--> waiting
 *	 dead --(outbox_discard)--> discarded
 *	 returned --(refused or deferred once more)--> waiting
 *
 * A message whose body cannot be read waits without it; its row names the row
 * of the log that has the body.
 *
 * A message goes to the stream that its destination has when it is returned. One that
 * a Redis Cluster has lost goes to the one that it was in, if that is another one by now
 * (route.c): its row names that stream, and so does the row of the log that is returned.
 *
 * Due messages go back to the log (due_messages.c). Their rows stay here as tombstones
 * (tombstones.c).
 *
 * In memory there is one entry for each destination that must not be sent to
 * (blocked_destinations.c). The table is what counts; the entries are read from it when the
 * dispatcher starts, and when another process has changed it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "bgworker/defer/blocked_destinations.h"
#include "bgworker/defer/deferral.h"
#include "bgworker/defer/deferred_count.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/held_by_dead.h"
#include "bgworker/defer/reload_pace.h"
#include "bgworker/defer/retry_pace.h"
#include "bgworker/process/transaction.h"
#include "src/kill_point.h"
#include "src/limits.h"
#include "src/log/deferred.h"
#include "src/log/log_id.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/* Defers a message again that has a tombstone; its original is then a younger row of the log. */
static Statement defer_again = {
	"UPDATE outbox.deferred SET log_segment = $2, state = $3, returned_tx = NULL, "
	"attempts = greatest(attempts, $4), next_attempt = $5, last_error = coalesce($6, last_error), "
	"first_attempt = coalesce(first_attempt, CASE WHEN $6 IS NOT NULL THEN clock_timestamp() END), "
	"last_attempt = CASE WHEN $6 IS NOT NULL THEN clock_timestamp() ELSE last_attempt END, stream = $7 WHERE id = $1",
	7, {INT8OID, INT4OID, TEXTOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID}
};

/* If another session has got the row meanwhile, it is tried again as it is. */
static Statement put_off = {
	"UPDATE outbox.deferred SET attempts = $2, next_attempt = $3, last_error = $4, state = CASE WHEN $5 THEN 'dead' ELSE state END, "
	"first_attempt = coalesce(first_attempt, clock_timestamp()), last_attempt = clock_timestamp() "
	"WHERE id = (SELECT id FROM outbox.deferred WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED)",
	5, {INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID, BOOLOID}
};

static Statement find_head = {
	"SELECT id, next_attempt, enqueued_at FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 AND id >= $2 ORDER BY id LIMIT 1",
	2, {TEXTOID, INT8OID}
};

static void load_waiting(char *refusal, size_t size);
static void read_head(HeapTuple row, TupleDesc columns, int first, Blocked *blocked);
static void add_waiting(Blocked *blocked, int64 id, TimestampTz due, TimestampTz at);
static void wait_behind(const Message *message, int segment, TimestampTz now);
static bool must_wait(const Message *message);
static int64 write_row(const Message *message, int segment, DeferredState state, int attempts,
					   TimestampTz next_attempt, const char *error);
static int	count_attempts(int64 id);
static void defer_failed(const Message *message, int segment, int attempts, const char *error);
static int64 give_up(const Message *message, int segment, int attempts, const char *error);

/*
 * Reads which messages are deferred, and which destinations are paused. Those that are tried, or
 * accept messages again, stay so: else theirs would be returned one by one while others change
 * something again and again. Needs an open transaction.
 */
void
deferral_load(void)
{
	char		refusal[LINK_ERROR_BYTES];
	List	   *probing = blocked_names(BLOCKED_PROBING);
	List	   *draining = blocked_names(BLOCKED_DRAINING);

	reload_pace_begin();
	blocked_reset();
	held_by_dead_load();
	load_waiting(refusal, sizeof(refusal));
	destination_each_paused(blocked_pause);
	held_by_dead_each_unsettled(blocked_pause_locked);
	blocked_keep(probing, BLOCKED_PROBING);
	blocked_keep(draining, BLOCKED_DRAINING);
	deferred_count_load();
	deferred_count_report(refusal[0] ? refusal : NULL);
	reload_pace_end();
}

/*
 * The same in a transaction of its own, after one that deferred messages was rolled back, so that
 * what is tried is not known any more; false if the extension is being dropped.
 */
bool
deferral_reload(void)
{
	deferred_abort_append();
	if (!transaction_begin("reading what is deferred"))
	{
		reload_pace_ask_at_once();
		return false;
	}
	blocked_reset();
	deferral_load();
	transaction_commit();
	return true;
}

/*
 * Defers a message if it must not be sent now, because it is scheduled or must
 * wait behind another one; returns whether it is deferred. The caller must call
 * deferred_end_append() and commit, with a flush, before it sends any batch
 * whose fence passes the message.
 */
bool
deferral_try_defer(const Message *message, int segment)
{
	const char *refusal = destination_refusal(message->dest);
	bool		is_held = held_by_dead_holds(message);
	TimestampTz now;

	if (message->deliver_at == 0 && !must_wait(message) && refusal == NULL && !is_held)
		return false;

	now = GetCurrentTimestamp();
	if (message->deliver_at > now)
	{
		write_row(message, segment, DEFERRED_SCHEDULED, 0, message->deliver_at, NULL);
		KILL_POINT("scheduled_written");
		deferred_count_add_scheduled(message->deliver_at);
	}
	else if (is_held)
	{
		write_row(message, segment, DEFERRED_HELD, 0, now, NULL);
		held_by_dead_note(message);
	}
	else if (must_wait(message))
		wait_behind(message, segment, now);
	else if (refusal)
	{
		deferral_defer_refused(message, segment, refusal);
		return true;
	}
	else
		return false;
	deferred_count_report(NULL);
	return true;
}

/* Defers a message that must wait behind others of its destination. */
static void
wait_behind(const Message *message, int segment, TimestampTz now)
{
	Blocked    *blocked = blocked_find(message->dest);
	int64		id = write_row(message, segment, DEFERRED_WAITING, 0, now, NULL);

	KILL_POINT("deferred_written");
	blocked_take(blocked);
	add_waiting(blocked, id, now, message->at);
	blocked_file(blocked);
}

/*
 * Defers a message that Redis refused; the caller must do the same. It is tried
 * again later, or is dead after outbox.max_attempts.
 */
void
deferral_defer_refused(const Message *message, int segment, const char *error)
{
	int			attempts = count_attempts(message->id) + 1;
	const Blocked *blocked = blocked_find(message->dest);

	if (attempts == 1 && (blocked == NULL || blocked->waiting == 0))
		ereport(LOG, (errmsg("outbox: destination \"%s\" refuses messages: %s", text_to_cstring(message->dest), error)));
	if (attempts > 1)
		retry_pace_note_refused_probe();
	defer_failed(message, segment, attempts, error);
}

/*
 * Defers a message without headers and body, which could not be read; the
 * caller must do the same. They are read again later, from where they are in
 * the log; after outbox.max_attempts the message is dead.
 */
void
deferral_defer_unreadable(const Message *message, int segment, const char *error)
{
	int			attempts = count_attempts(message->id) + 1;

	if (attempts == 1)
		ereport(LOG, (errmsg("outbox: message \"%s\" for destination \"%s\" cannot be read: %s",
							 text_to_cstring(message->message_id), text_to_cstring(message->dest), error)));
	defer_failed(message, segment, attempts, error);
}

/*
 * Postpones a deferred message that is due and cannot be read; in a transaction
 * of its own, after the one that would have returned it was rolled back. It is
 * tried again like a message that Redis refused.
 */
void
deferral_put_off(int64 id, const char *error)
{
	if (transaction_begin("putting off a message"))
	{
		int			attempts = count_attempts(id) + 1;
		bool		is_dead = attempts >= outbox_max_attempts;

		SPI_connect();
		(void) transaction_run(&put_off, (Datum[]) {
			Int64GetDatum(id), Int32GetDatum(attempts), TimestampTzGetDatum(retry_pace_next_attempt(attempts)),
				CStringGetTextDatum(error), BoolGetDatum(is_dead)
		}, NULL);
		SPI_finish();
		transaction_commit();
		if (is_dead)
			ereport(LOG,
					(errmsg_plural("outbox: deferred message %lld is dead after %d attempt because it cannot be read: %s",
								   "outbox: deferred message %lld is dead after %d attempts because it cannot be read: %s",
								   attempts, (long long) id, attempts, error)));
	}
	(void) deferral_reload();
	deferred_count_report(error);
}

/* Reads which message of a destination waits first; there may be one that only others know of. Needs an open transaction. */
void
deferral_read_head(Blocked *blocked)
{
	blocked->waiting = Max(blocked->waiting, 0);
	SPI_connect();
	if (transaction_run(&find_head, (Datum[]) {CStringGetTextDatum(blocked->dest), Int64GetDatum(blocked_first_id(blocked))}, NULL) > 0)
	{
		read_head(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, blocked);
		blocked->waiting = Max(blocked->waiting, 1);
	}
	SPI_finish();
}

/*
 * Reads which destinations have waiting messages, how many, and which comes first: there may
 * be thousands. Copies the newest refusal of those that come first, or an empty string.
 */
static void
load_waiting(char *refusal, size_t size)
{
	refusal[0] = '\0';
	own_table_require(relations_enter()->deferred, OWN_DEFERRED);
	SPI_connect();
	(void) transaction_query("SELECT w.dest, w.messages, h.id, h.next_attempt, h.enqueued_at, h.last_error FROM "
							 "(SELECT dest, count(*) AS messages, min(id) AS head FROM outbox.deferred WHERE state = 'waiting' GROUP BY dest) w "
							 "JOIN outbox.deferred h ON h.id = w.head ORDER BY h.last_attempt NULLS FIRST", 0, NULL, NULL, NULL);
	own_rows_require(ROWS_WAITING);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	columns = SPI_tuptable->tupdesc;
		bool		isnull;
		Blocked    *blocked = blocked_open(SPI_getvalue(row, columns, 1));
		const char *error = SPI_getvalue(row, columns, 6);

		blocked->waiting = DatumGetInt64(SPI_getbinval(row, columns, 2, &isnull));
		blocked->is_refused = error != NULL;
		read_head(row, columns, 3, blocked);
		blocked_file(blocked);
		if (error)
			strlcpy(refusal, error, size);
	}
	SPI_finish();
}

/* Takes the message of a destination that waits first from a row, from that column on. */
static void
read_head(HeapTuple row, TupleDesc columns, int first, Blocked *blocked)
{
	bool		isnull;

	blocked->head = DatumGetInt64(SPI_getbinval(row, columns, first, &isnull));
	blocked->due = DatumGetTimestampTz(SPI_getbinval(row, columns, first + 1, &isnull));
	blocked->at = DatumGetTimestampTz(SPI_getbinval(row, columns, first + 2, &isnull));
}

/* Counts another message that waits, enqueued at `at`, which may come before all others of its destination. */
static void
add_waiting(Blocked *blocked, int64 id, TimestampTz due, TimestampTz at)
{
	if (blocked->waiting == 0 || id < blocked->head)
	{
		blocked->head = id;
		blocked->due = due;
		blocked->at = at;
	}
	blocked->waiting++;
}

/* Check whether a message must wait behind another one, or for outbox_resume(). */
static bool
must_wait(const Message *message)
{
	const Blocked *blocked = blocked_find(message->dest);

	return blocked &&
		(blocked->paused || (blocked->waiting > 0 && blocked->head < message->id));
}

/* Writes the row of a message. Returns the id of the row. */
static int64
write_row(const Message *message, int segment, DeferredState state,
		  int attempts, TimestampTz next_attempt, const char *error)
{
	FullTransactionId returned_tx;
	int			before;
	bool		found = deferred_find(message->id, &returned_tx, &before);

	if (found && FullTransactionIdEquals(returned_tx, message->tx))
	{
		const char	nulls[] = {' ', ' ', ' ', ' ', ' ', error ? ' ' : 'n', message->stream ? ' ' : 'n', '\0'};

		SPI_connect();
		found = transaction_run(&defer_again,
								(Datum[]) {
									Int64GetDatum(message->id), Int32GetDatum(segment),
									CStringGetTextDatum(deferred_state_name(state)), Int32GetDatum(attempts),
									TimestampTzGetDatum(next_attempt), error ? CStringGetTextDatum(error) : (Datum) 0,
									PointerGetDatum(message->stream)
								}, nulls) > 0;
		SPI_finish();
		if (found)
			return message->id;

		/* It was deleted meanwhile; the message must not get lost. */
	}
	if (found)
	{
		/*
		 * A restore may have given another message that id; none of them must
		 * get lost.
		 */
		Message		other = *message;

		other.id = log_id_next();
		return deferred_append(&other, segment, state, attempts, next_attempt, error);
	}
	return deferred_append(message, segment, state, attempts, next_attempt, error);
}

/* Counts the attempts of a message that was deferred before. */
static int
count_attempts(int64 id)
{
	FullTransactionId ignored;
	int			attempts = 0;

	(void) deferred_find(id, &ignored, &attempts);
	return attempts;
}

/* Defers a message after a failed attempt: until the next attempt, or as dead. */
static void
defer_failed(const Message *message, int segment, int attempts, const char *error)
{
	TimestampTz due = retry_pace_next_attempt(attempts);
	bool		is_dead = attempts >= outbox_max_attempts;

	if (!is_dead && message->deliver_at > GetCurrentTimestamp())
	{
		write_row(message, segment, DEFERRED_SCHEDULED, attempts, due, error);
		deferred_count_add_scheduled(due);
	}
	else
	{
		char		dest[MAX_NAME_BYTES + 1];
		Blocked    *blocked;

		destination_key(message->dest, dest);
		blocked = blocked_open(dest);
		if (is_dead)
		{
			int64		known = blocked->waiting;

			blocked->waiting -= held_by_dead_note_dead(message, give_up(message, segment, attempts, error));

			/* Those held now may not all have been counted. */
			if (known != 0 || blocked->waiting != 0)
				deferral_read_head(blocked);
		}
		else
		{
			int64		id = write_row(message, segment, DEFERRED_WAITING, attempts, due, error);

			add_waiting(blocked, id, due, message->at);
		}
		blocked->is_refused = true;
		blocked->state = BLOCKED_WAITING;
		blocked_file(blocked);
	}
	deferred_count_report(error);
}

/* Writes that a message is dead, and logs it. Returns the id of its row. */
static int64
give_up(const Message *message, int segment, int attempts, const char *error)
{
	int64		id = write_row(message, segment, DEFERRED_DEAD, attempts, GetCurrentTimestamp(), error);

	deferred_count_add_dead();
	ereport(LOG,
			(errmsg_plural("outbox: message \"%s\" for destination \"%s\" is dead after %d attempt: %s",
						   "outbox: message \"%s\" for destination \"%s\" is dead after %d attempts: %s",
						   attempts, text_to_cstring(message->message_id), text_to_cstring(message->dest), attempts, error)));
	return id;
}
