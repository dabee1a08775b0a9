/*
 * due_messages.c
 *		Returns deferred messages to the log when their time has come.
 *
 * Called by the dispatcher, only when all windows are sent, so that they
 * are sent before everything that is enqueued later. They keep their original
 * id and are sent like other messages; their rows in outbox.deferred stay as
 * tombstones (deferral.c).
 *
 * In a Redis Cluster messages may have been left out of these windows, because a hash
 * slot cannot be written to (lanes.c). They come back in their own windows, so before
 * whatever is returned now. Only a destination that may have had such messages, and has
 * earlier ones waiting, must keep these back until then: it is set apart. Scheduled
 * messages need not be: they are sent when their time has come, and in no other order.
 *
 * Returned are: the first message of a destination that has refused one, as a
 * probe; the other messages of a destination whose probe was accepted;
 * scheduled messages.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "bgworker/defer/blocked_destinations.h"
#include "bgworker/defer/deferral.h"
#include "bgworker/defer/deferred_count.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/due_messages.h"
#include "bgworker/defer/held_by_dead.h"
#include "bgworker/defer/reload_pace.h"
#include "bgworker/defer/retry_pace.h"
#include "bgworker/defer/returned_rows.h"
#include "bgworker/process/bad_message.h"
#include "bgworker/process/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"

/*
 * Limits of one transaction: messages; probes; bytes after which no further
 * message is returned.
 */
#define RETURN_LIMIT	1000
#define PROBE_LIMIT		100
#define RETURN_BYTES	1048576

/* How long messages are left alone whose rows another session has locked. */
#define LOCKED_REST_MS	1000

/* Statement that returns the first messages of a query, up to RETURN_BYTES. */
#define RETURN_FIRST_OF(due) \
	"UPDATE outbox.deferred d SET state = 'returned', returned_tx = pg_current_xact_id() " \
	"FROM (SELECT id, sum(size) OVER (ORDER BY place) - size AS bytes_before " \
	"FROM (SELECT id, coalesce(octet_length(body), 0) AS size, row_number() OVER () AS place FROM (" due ") due) sized) first " \
	"WHERE d.id = first.id AND first.bytes_before < " CppAsString2(RETURN_BYTES) " " \
	"RETURNING " RETURNED_COLUMNS

/*
 * No row is waited for that another session has locked, perhaps for long: an administrator
 * may delete messages. The messages of a destination keep their order, so of these only
 * those before the first locked one are returned: those that have the same place among
 * all and among the ones that are not locked.
 *
 * Each index is entered where the first message is. Before it are the entries of all that
 * were returned since the oldest snapshot.
 */
#define WAITING_OF_DEST "FROM outbox.deferred WHERE state = 'waiting' AND dest = $1 AND id >= $3 ORDER BY id LIMIT $2"

static Statement return_probes = {
	RETURN_FIRST_OF("SELECT id, body FROM outbox.deferred WHERE state = 'waiting' AND id = ANY ($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"),
	1, {INT8ARRAYOID}
};
static Statement return_waiting = {
	RETURN_FIRST_OF("SELECT id, body FROM "
					"(SELECT id, body, row_number() OVER (ORDER BY id) AS place FROM (SELECT id, body " WAITING_OF_DEST " FOR NO KEY UPDATE SKIP LOCKED) f) free "
					"WHERE id = (ARRAY(SELECT id " WAITING_OF_DEST "))[place::integer] ORDER BY id"),
	3, {TEXTOID, INT4OID, INT8OID}
};
static Statement return_scheduled = {
	RETURN_FIRST_OF("SELECT id, body FROM outbox.deferred WHERE state = 'scheduled' AND next_attempt <= clock_timestamp() AND next_attempt >= $2 "
					"ORDER BY next_attempt LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED"),
	2, {INT4OID, TIMESTAMPTZOID}
};
static Statement next_scheduled = {
	"SELECT next_attempt FROM outbox.deferred WHERE state = 'scheduled' AND next_attempt >= $1 ORDER BY next_attempt LIMIT 1",
	1, {TIMESTAMPTZOID}
};

static bool (*is_unreachable) (const char *dest);	/* messages for it may be
													 * left out */
static TimestampTz scheduled_rest;	/* scheduled messages are locked, and left
									 * alone until then */

static bool set_apart(Blocked *blocked);
static int64 try_return(TimestampTz now, int64 *returned, char *error, size_t size);
static int64 probe_due(TimestampTz now);
static void note_probe(const Message *message);
static int64 drain(void);
static void rest(Blocked *blocked);
static int64 release_scheduled(void);

/* Prepares for use; called once. `is_unreachable` tells whether messages for a destination may be left out of windows. */
void
due_messages_init(bool (*unreachable) (const char *dest))
{
	is_unreachable = unreachable;
}

/* Must be called when destinations that could not be reached may be reached again: those that were set apart rejoin the others. */
void
due_messages_rejoin_all(void)
{
	blocked_rejoin_all();
}

/*
 * Returns messages that are due to the log, but only as many as do not delay
 * the other messages of the next window for long. Must be called only when all
 * windows are sent, and right before the next one is opened; `all_is_published` tells
 * that nothing was left out of them. Returns whether any message was returned.
 */
bool
due_messages_return(bool all_is_published)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		returned;
	int64		failed;
	char		error[256];

	if (due_messages_ms_until() > 0 || held_by_dead_awaits_settling() || !transaction_begin("returning deferred messages"))
		return false;
	failed = try_return(now, &returned, error, sizeof(error));
	if (failed != 0)
	{
		deferral_put_off(failed, error);
		return false;
	}
	if (returned > 0)
		KILL_POINT("return_written");
	transaction_commit();
	if (returned > 0)
		KILL_POINT("return_committed");
	deferred_count_add_returned(returned);
	if (all_is_published)
		deferred_count_settle(deferred_count_waiting());
	deferred_count_report(NULL);
	return returned > 0;
}

/*
 * Ends all probes: every window has been sent, so those that were neither
 * deferred again nor left out were accepted.
 */
void
due_messages_end_probes(void)
{
	Blocked    *blocked;

	retry_pace_end_probes();
	while ((blocked = blocked_next_probing()) != NULL)
	{
		blocked_take(blocked);
		if (set_apart(blocked))
			continue;
		KILL_POINT("probe_passed");
		if (blocked->is_refused)
			ereport(LOG, (errmsg("outbox: destination \"%s\" accepts messages again", blocked->dest)));
		blocked->state = BLOCKED_DRAINING;
		blocked->is_refused = false;
		blocked_file(blocked);
	}
}

/* Files an entry that was taken out apart from the others, if messages for the destination may be left out. Returns whether it does. */
static bool
set_apart(Blocked *blocked)
{
	blocked->is_apart = is_unreachable(blocked->dest);
	if (blocked->is_apart)
		blocked_file(blocked);
	return blocked->is_apart;
}

/* Returns how long until due_messages_return() has something to do. */
long
due_messages_ms_until(void)
{
	const Blocked *blocked = blocked_next_due();
	long		ms = held_by_dead_ms_until_settling();
	TimestampTz scheduled_due = deferred_count_scheduled_due();
	TimestampTz now;

	if (reload_pace_comes_first())
		return reload_pace_ms_until();
	if (blocked_draining() > 0)
		return 0;
	if (blocked == NULL && scheduled_due == 0)
		return ms;
	now = GetCurrentTimestamp();
	if (blocked)
		ms = Min(ms, Max(TimestampDifferenceMilliseconds(now, blocked->due),
						 TimestampDifferenceMilliseconds(clock_now(), retry_pace_next_probe())));
	if (scheduled_due != 0)
		ms = Min(ms, TimestampDifferenceMilliseconds(now, Max(scheduled_due, scheduled_rest)));
	return ms;
}

/* Check whether anything waits for all windows to be sent: messages that are due, or a probe. */
bool
due_messages_await_turn(void)
{
	return due_messages_ms_until() <= 0 || blocked_next_probing() != NULL;
}

/* Returns 0, or which message could not be returned; the transaction is then rolled back. */
static int64
try_return(TimestampTz now, int64 *returned, char *error, size_t size)
{
	volatile int64 failed = 0;

	PG_TRY();
	{
		*returned = probe_due(now) + drain();
		if (deferred_count_scheduled_due() != 0 && Max(deferred_count_scheduled_due(), scheduled_rest) <= now)
			*returned += release_scheduled();
	}
	PG_CATCH();
	{
		failed = returned_rows_take_failed();
		if (failed == 0)
			PG_RE_THROW();
		bad_message_abort(error, size);
	}
	PG_END_TRY();
	return failed;
}

/* Returns the heads that are due, as probes, and reads which messages are the heads after that. */
static int64
probe_due(TimestampTz now)
{
	Blocked    *chosen[PROBE_LIMIT];
	Datum		ids[PROBE_LIMIT];
	int			n = 0;
	int64		returned;

	if (clock_now() < retry_pace_next_probe())
		return 0;
	while (n < PROBE_LIMIT && (chosen[n] = blocked_next_due()) != NULL && chosen[n]->due <= now)
	{
		blocked_take(chosen[n]);
		if (set_apart(chosen[n]))
			continue;
		ids[n] = Int64GetDatum(chosen[n]->head);
		n++;
	}
	if (n == 0)
		return 0;
	retry_pace_begin_probes();
	returned = returned_rows_append(&return_probes,
									(Datum[]) {PointerGetDatum(construct_array(ids, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE))},
									note_probe, NULL);
	for (int i = 0; i < n; i++)
	{
		if (chosen[i]->state == BLOCKED_PROBING)
			deferral_read_head(chosen[i]);
		else
			rest(chosen[i]);
		blocked_file(chosen[i]);
	}
	return returned;
}

/* Notes that a message of this destination is under way as a probe. */
static void
note_probe(const Message *message)
{
	Blocked    *blocked = blocked_find(message->dest);

	/* Others may have given it another destination since that was read. */
	if (blocked == NULL || blocked->head != message->id)
		return;
	blocked->state = BLOCKED_PROBING;
	blocked->waiting--;
	destination_ask_again(message->dest);
}

/* Returns the first messages of destinations that accept messages again, in turn. */
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
		if (set_apart(blocked))
			continue;
		first = returned_rows_append(&return_waiting,
									 (Datum[]) {CStringGetTextDatum(blocked->dest), Int32GetDatum(RETURN_LIMIT - returned), Int64GetDatum(blocked_first_id(blocked))},
									 NULL, &bytes);
		blocked->waiting -= first;
		deferral_read_head(blocked);
		if (first == 0)
			rest(blocked);
		blocked_file(blocked);
		returned += first;
	}
	return returned;
}

/* Leaves a destination alone for a while whose first message is locked; then it is tried like one that was refused. */
static void
rest(Blocked *blocked)
{
	blocked->state = BLOCKED_WAITING;
	blocked->due = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOCKED_REST_MS);
}

/* Returns scheduled messages whose time has come, and notes when the next one is due. */
static int64
release_scheduled(void)
{
	Datum		from = TimestampTzGetDatum(deferred_count_scheduled_due());
	int64		returned = returned_rows_append(&return_scheduled, (Datum[]) {Int32GetDatum(RETURN_LIMIT), from}, NULL, NULL);
	bool		isnull;
	TimestampTz next_due = 0;

	SPI_connect();
	if (transaction_run(&next_scheduled, &from, NULL) > 0)
		next_due = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	deferred_count_remove_scheduled(returned, next_due);
	if (returned == 0)
		scheduled_rest = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOCKED_REST_MS);
	return returned;
}
