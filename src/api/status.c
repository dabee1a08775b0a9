/*
 * status.c
 *		What outbox.status shows.
 *
 * Reads the dispatcher's report in shared memory and as little of the tables
 * as possible, so that the answer comes in milliseconds whatever is pending;
 * if no dispatcher has run since the server was started, also all that is deferred.
 * Reads what is committed now, and holds no lock when it returns.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/api/problem_view.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/log_id.h"
#include "src/log/window_row.h"
#include "src/shared.h"

/* Messages that no window holds yet are counted one by one up to here. */
#define COUNT_LIMIT		2000

/* What has been committed since a window ended. */
typedef struct Unopened
{
	int64		messages;
	int64		rows;			/* receipts included */
	int64		lowest_id;
	TimestampTz oldest;
	bool		complete;		/* counting did not reach its limit */
} Unopened;

/* What outbox.status says about pending messages. */
typedef struct Backlog
{
	int64		pending;
	int64		windows;
	TimestampTz oldest;			/* 0 = nothing is pending */
} Backlog;

static void read_report(DispatcherReport *report);
static void keep_counts(DispatcherReport *report, const DispatcherReport *earlier);
static bool count_deferred(const Deferred *row, void *arg);
static void read_backlog(Backlog *backlog);
static void add_deferred(Backlog *backlog, const DispatcherReport *report);
static void count_unopened(const Window *newest, Unopened *unopened);
static bool count_message(TupleTableSlot *row, int segment, void *arg);
static const char *dispatcher_state_name(DispatcherState state);
static const char *redis_state_name(RedisState state);

PG_FUNCTION_INFO_V1(outbox_read_status);

/* outbox.read_status() */
Datum
outbox_read_status(PG_FUNCTION_ARGS)
{
	TupleDesc	columns;
	Datum		values[15];
	bool		isnull[15] = {0};
	DispatcherReport earlier;
	DispatcherReport report;
	Backlog		backlog;
	DatabaseShared *shared = shared_mine();
	char	   *problem;
	int			i = 0;

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	read_report(&earlier);
	read_backlog(&backlog);
	read_report(&report);
	keep_counts(&report, &earlier);
	if (!report.deferred_known)
		deferred_scan(count_deferred, &report);
	add_deferred(&backlog, &report);
	problem = problem_view_first();

	isnull[i] = report.pid == 0;
	values[i++] = Int32GetDatum(report.pid);
	values[i++] = CStringGetTextDatum(dispatcher_state_name(report.state));
	values[i++] = CStringGetTextDatum(redis_state_name(report.redis));
	isnull[i] = report.redis_error[0] == '\0';
	values[i++] = CStringGetTextDatum(report.redis_error);
	values[i++] = Int64GetDatum(backlog.pending);
	isnull[i] = backlog.oldest == 0;
	values[i++] = DirectFunctionCall2(timestamp_mi, TimestampTzGetDatum(GetCurrentTimestamp()),
									  TimestampTzGetDatum(backlog.oldest));
	values[i++] = Int64GetDatum(shared ? pg_atomic_read_u64(&shared->sent) : 0);
	values[i++] = Int64GetDatum(shared ? pg_atomic_read_u64(&shared->duplicates) : 0);
	values[i++] = Int64GetDatum(report.deferred);
	values[i++] = Int64GetDatum(report.scheduled);
	values[i++] = Int64GetDatum(report.dead);
	values[i++] = Int64GetDatum(backlog.windows);
	values[i++] = Int64GetDatum(log_size());
	isnull[i] = report.last_cleanup == 0;
	values[i++] = TimestampTzGetDatum(report.last_cleanup);
	isnull[i] = problem == NULL;
	values[i++] = problem ? CStringGetTextDatum(problem) : (Datum) 0;

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, isnull)));
}

/* Copies the report; it is empty if there is no shared memory. */
static void
read_report(DispatcherReport *report)
{
	DatabaseShared *shared = shared_mine();

	memset(report, 0, sizeof(*report));
	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_SHARED);
	*report = shared->report;
	LWLockRelease(shared->lock);
}

/*
 * Lets the report count what an earlier one counted. A message that is deferred while the
 * log is read is counted after that only, and one that is returned to the log before that
 * only; one that is both meanwhile is among those that were returned. For a moment a message
 * may be counted twice, but each is counted.
 */
static void
keep_counts(DispatcherReport *report, const DispatcherReport *earlier)
{
	report->deferred = Max(report->deferred, earlier->deferred);
	report->deferred_settled = Max(report->deferred_settled + report->returned - earlier->returned, earlier->deferred_settled);
	report->scheduled = Max(report->scheduled, earlier->scheduled);
	report->dead = Max(report->dead, earlier->dead);
	if (report->deferred_oldest == 0)
		report->deferred_oldest = earlier->deferred_oldest;
}

/* A DeferredReader: counts a message in a report of a dispatcher that has not counted any since the server was started. */
static bool
count_deferred(const Deferred *row, void *arg)
{
	DispatcherReport *report = arg;

	if (row->state == DEFERRED_SCHEDULED)
		report->scheduled++;
	else if (row->state == DEFERRED_DEAD)
		report->dead++;
	else if (row->state == DEFERRED_WAITING || row->state == DEFERRED_HELD)
	{
		report->deferred++;
		report->deferred_settled++;
		if (report->deferred_oldest == 0 || row->message.at < report->deferred_oldest)
			report->deferred_oldest = row->message.at;
	}
	return true;
}

/* Counts windows by their running totals, and the rest one by one. */
static void
read_backlog(Backlog *backlog)
{
	Window		newest;
	Window		published;
	Window		first;
	Unopened	unopened;

	memset(backlog, 0, sizeof(*backlog));
	/* In this order: nothing is published then that is newer than the newest. */
	if (!window_row_published(&published) || !window_row_newest(&newest))
		return;
	count_unopened(&newest, &unopened);

	backlog->windows = newest.number - published.number;
	backlog->pending = newest.messages - published.messages + unopened.messages;
	if (newest.messages > published.messages && window_row_fetch(published.number + 1, &first))
		backlog->oldest = first.oldest;
	if (backlog->oldest == 0)
		backlog->oldest = unopened.oldest;
}

/* Adds deferred messages that are in no window any more. */
static void
add_deferred(Backlog *backlog, const DispatcherReport *report)
{
	backlog->pending += report->deferred_settled;
	if (report->deferred_oldest != 0 &&
		(backlog->oldest == 0 || report->deferred_oldest < backlog->oldest))
		backlog->oldest = report->deferred_oldest;
}

/* Counts what was committed after the newest window; beyond COUNT_LIMIT it is estimated. */
static void
count_unopened(const Window *newest, Unopened *unopened)
{
	memset(unopened, 0, sizeof(*unopened));
	unopened->complete = true;
	unopened->lowest_id = PG_INT64_MAX;
	log_scan(SnapshotSelf, newest->snapshot, snapshot_value_latest(), count_message, unopened);
	if (!unopened->complete)
		unopened->messages = Max(COUNT_LIMIT, log_id_last() - unopened->lowest_id + 1);
}

/* A LogReader. Ends the scan at COUNT_LIMIT; the rest is estimated. */
static bool
count_message(TupleTableSlot *row, int segment, void *arg)
{
	Unopened   *unopened = arg;
	TimestampTz at = log_row_at(row);

	unopened->rows++;
	unopened->lowest_id = Min(unopened->lowest_id, log_row_id(row));
	unopened->complete = unopened->rows < COUNT_LIMIT;
	if (log_row_is_receipt(row))
		return unopened->complete;

	unopened->messages++;
	if (unopened->oldest == 0 || at < unopened->oldest)
		unopened->oldest = at;
	return unopened->complete;
}

/* Returns what outbox.status calls a state of the dispatcher. */
static const char *
dispatcher_state_name(DispatcherState state)
{
	switch (state)
	{
		case DISPATCHER_NONE:
			return "not running";
		case DISPATCHER_STARTING:
			return "starting";
		case DISPATCHER_IDLE:
			return "idle";
		case DISPATCHER_PUBLISHING:
			return "publishing";
		case DISPATCHER_WAITING_FOR_REDIS:
			return "waiting for Redis";
		case DISPATCHER_WAITING_FOR_LEASE:
			return "waiting for the lease";
		case DISPATCHER_PAUSED:
			return "paused";
		case DISPATCHER_OFF:
			return "off";
	}
	return NULL;
}

/* Returns what outbox.status calls a state of Redis. */
static const char *
redis_state_name(RedisState state)
{
	switch (state)
	{
		case REDIS_UNKNOWN:
			return "unknown";
		case REDIS_UP:
			return "up";
		case REDIS_DOWN:
			return "down";
	}
	return NULL;
}
