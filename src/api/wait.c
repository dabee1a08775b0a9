/*
 * wait.c
 *		outbox_wait(): waits until what a message caused is in Redis.
 *
 * It sleeps on the condition variable that the dispatcher broadcasts when
 * windows have been published or a round of cleanup has ended (cleanup.c sleeps
 * on it, too). It reads what is committed now, not what this transaction's
 * snapshot shows, and must hold no lock on a segment while it sleeps.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/api/wait.h"
#include "src/claim/claim.h"
#include "src/clock.h"
#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/window_row.h"
#include "src/owner_privileges.h"
#include "src/shared.h"
#include "src/wait_event.h"

/* The longest sleep: a dispatcher may die without waking us. */
#define MAX_SLEEP_MS	1000

static Datum wait_for_record(FunctionCallInfo fcinfo, const char *msgid);
static RecordLook look_up(RecordName *name);
static bool is_known_less_well(const RecordLook *one, const RecordLook *other);
static TimestampTz wait_deadline(FunctionCallInfo fcinfo);
static bool is_published(const RecordName *name, const RecordLook *look, bool *is_dead);
static bool is_sent_beside(const RecordName *name, const RecordLook *look);
static bool is_sent(const RecordName *name, const RecordLook *look, const Window *published);

PG_FUNCTION_INFO_V1(outbox_wait_text);
PG_FUNCTION_INFO_V1(outbox_wait_uuid);

/* outbox_wait(msgid text, endpoint, timeout) */
Datum
outbox_wait_text(PG_FUNCTION_ARGS)
{
	return wait_for_record(fcinfo, argument_msgid(fcinfo, TEXTOID));
}

/* outbox_wait(msgid uuid, endpoint, timeout) */
Datum
outbox_wait_uuid(PG_FUNCTION_ARGS)
{
	return wait_for_record(fcinfo, argument_msgid(fcinfo, UUIDOID));
}

/* Waits until all that the record of a message carries is in Redis; NULL if there is no record. */
static Datum
wait_for_record(FunctionCallInfo fcinfo, const char *msgid)
{
	Endpoint	endpoint = argument_endpoint(fcinfo, 1);
	RecordName	name;
	TimestampTz deadline;
	RecordLook	look;
	DatabaseShared *shared;
	bool		published;
	bool		is_dead = false;
	MemoryContext turn;

	record_name_make(&name, &endpoint, msgid);
	deadline = wait_deadline(fcinfo);
	owner_code_refuse();
	look = look_up(&name);
	if (look.fate == RECORD_COMMITTED && TransactionIdIsCurrentTransactionId(look.xmin))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot wait for message \"%s\" in the transaction that processes it", name.msgid),
				 errhint("Call outbox_wait() after COMMIT; nothing is sent before that.")));
	if (look.fate != RECORD_COMMITTED)
		PG_RETURN_NULL();

	shared = caller_check_preloaded();
	turn = AllocSetContextCreate(CurrentMemoryContext, "outbox_wait", ALLOCSET_SMALL_SIZES);
	ConditionVariablePrepareToSleep(&shared->progress);
	do
	{
		MemoryContext caller = MemoryContextSwitchTo(turn);

		published = is_published(&name, &look, &is_dead);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(turn);
	} while (!published && !is_dead && wait_for_progress(shared, deadline));
	ConditionVariableCancelSleep();

	PG_RETURN_BOOL(published);
}

/*
 * Looks up a record. One from before the endpoint had its custom record table may have another
 * name, by which its messages know it; then that is put into *name.
 */
static RecordLook
look_up(RecordName *name)
{
	RecordName	given;
	RecordLook	found = claim_look_up(name, NULL);
	RecordLook	before;

	if (found.fate != RECORD_COMMITTED || found.in_table || !record_name_as_given(name, &given))
		return found;
	before = claim_look_up(&given, NULL);
	if (before.fate != RECORD_COMMITTED || is_known_less_well(&before, &found))
		return found;
	*name = given;
	return before;
}

/* Check whether it is known of one record when its messages were published, and of the other only that it is there. */
static bool
is_known_less_well(const RecordLook *one, const RecordLook *other)
{
	return !FullTransactionIdIsValid(one->tx) && !one->restored &&
		(FullTransactionIdIsValid(other->tx) || other->restored);
}

/* Returns the end of the time that the third argument allows, by clock_now(). */
static TimestampTz
wait_deadline(FunctionCallInfo fcinfo)
{
	TimestampTz now = clock_now();
	TimestampTz deadline;

	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("timeout must not be null")));
	deadline = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
													   TimestampTzGetDatum(now),
													   PG_GETARG_DATUM(2)));
	if (deadline < now)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative")));
	return deadline;
}

/*
 * Check whether everything that a committed record carries is in Redis; *is_dead says
 * that a message of it has been given up.
 */
static bool
is_published(const RecordName *name, const RecordLook *look, bool *is_dead)
{
	Window		window;
	bool		sent;

	if (!window_row_published(&window))
		return false;

	/*
	 * A record in a custom record table stays unmarked when a message of it
	 * is dead.
	 */
	sent = is_sent(name, look, &window);
	return (!deferred_record_waits(&name->key, window.snapshot, NULL, is_dead) && sent) || is_sent_beside(name, look);
}

/*
 * The same while messages are left out, because a hash slot of a Redis Cluster cannot be
 * written to: nothing counts as published from the first of them on, but what the record
 * carries may be for other destinations. Only for records of our own that are known by
 * their transaction.
 */
static bool
is_sent_beside(const RecordName *name, const RecordLook *look)
{
	Window		window;
	DestinationSet left_out;
	bool		is_dead;

	return !look->restored && FullTransactionIdIsValid(look->tx) && window_row_sent(&window, &left_out) &&
		snapshot_value_sees(window.snapshot, look->tx) &&
		!log_scan_carries_for(look->tx, name, &left_out) &&
		!deferred_record_waits(&name->key, window.snapshot, &left_out, &is_dead);
}

/*
 * Check whether what a record carries is in Redis or deferred. Messages of one that was
 * restored came back in another transaction. What is compacted or in a store was
 * published before. A record in a custom record table says whether it has been
 * marked, or is gone by now.
 */
static bool
is_sent(const RecordName *name, const RecordLook *look, const Window *published)
{
	RecordLook	now;

	if (look->restored)
		return !log_scan_carries_since(published->snapshot, name);
	if (FullTransactionIdIsValid(look->tx))
		return snapshot_value_sees(published->snapshot, look->tx) || !log_scan_carries(look->tx, name);
	if (!look->in_table)
		return true;
	now = claim_look_up(name, NULL);
	return now.fate != RECORD_COMMITTED || now.dispatched;
}

/*
 * Sleeps until the dispatcher has made progress, or may have. The caller has
 * called ConditionVariablePrepareToSleep(). Returns false when the deadline has
 * passed.
 */
bool
wait_for_progress(DatabaseShared *shared, TimestampTz deadline)
{
	long		left = TimestampDifferenceMilliseconds(clock_now(), deadline);

	CHECK_FOR_INTERRUPTS();
	if (left <= 0)
		return false;
	(void) ConditionVariableTimedSleep(&shared->progress, Min(left, MAX_SLEEP_MS), wait_event_of(OUTBOX_WAIT_PROGRESS));
	return true;
}
