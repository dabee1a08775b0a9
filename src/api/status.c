/*
 * status.c
 *		Shows status, pending messages and records in the views.
 *
 * Reads the dispatcher's report in shared memory and as little of the tables
 * as possible, so that the answer comes in milliseconds whatever is pending.
 * Reads what is committed now, and holds no lock when it returns.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/toast_internals.h"
#include "access/detoast.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/api/endpoint_view.h"
#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/log_id.h"
#include "src/log/window_row.h"
#include "src/problem.h"
#include "src/record/forgotten.h"
#include "src/record/record_ring.h"
#include "src/shared.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

/* Messages that no window holds yet are counted one by one up to here. */
#define COUNT_LIMIT		2000

/* Rows that outbox.pending shows. */
#define PENDING_LIMIT	1000

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

/* The rows of outbox.pending: as many as are shown, in no order. */
typedef struct PendingRows
{
	ReturnSetInfo *result;
	int			count;
} PendingRows;

static void read_report(DispatcherReport *report);
static void read_backlog(Backlog *backlog, const DispatcherReport *report);
static void count_unopened(const Window *newest, Unopened *unopened);
static bool count_message(TupleTableSlot *row, int segment, void *arg);
static const char *dispatcher_state_name(DispatcherState state);
static const char *redis_state_name(RedisState state);
static bool show_message(TupleTableSlot *row, int segment, void *arg);
static bool show_deferred(const Deferred *row, void *arg);
static void put_message(ReturnSetInfo *result, const Message *message, const Deferred *deferred);
static const char *pending_state(const Deferred *deferred);
static void show_records(ReturnSetInfo *result, int segment, const Segment *state);

PG_FUNCTION_INFO_V1(outbox_read_status);
PG_FUNCTION_INFO_V1(outbox_read_pending);
PG_FUNCTION_INFO_V1(outbox_read_records);

/* outbox.read_status() */
Datum
outbox_read_status(PG_FUNCTION_ARGS)
{
	TupleDesc	columns;
	Datum		values[15];
	bool		isnull[15] = {0};
	DispatcherReport report;
	Backlog		backlog;
	DatabaseShared *shared = shared_mine();
	char	   *problem;
	int			i = 0;

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	read_report(&report);
	read_backlog(&backlog, &report);
	problem = problem_first();

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

/* outbox.read_pending() */
Datum
outbox_read_pending(PG_FUNCTION_ARGS)
{
	PendingRows rows = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	Window		published;

	InitMaterializedSRF(fcinfo, 0);
	/* In the order in which a message may move meanwhile: none is missed. */
	if (window_row_published(&published))
		log_scan(SnapshotSelf, published.snapshot, snapshot_value_latest(), show_message, &rows);
	if (rows.count < PENDING_LIMIT)
		deferred_scan(show_deferred, &rows);
	return (Datum) 0;
}

/* outbox.read_records() */
Datum
outbox_read_records(PG_FUNCTION_ARGS)
{
	Rings		rings;

	InitMaterializedSRF(fcinfo, 0);
	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_RECORD].nsegments; n++)
	{
		if (segment_is_live(&rings.ring[RING_RECORD].segments[n]))
			show_records((ReturnSetInfo *) fcinfo->resultinfo, n, &rings.ring[RING_RECORD].segments[n]);
	}
	endpoint_view_records((ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
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

/* Counts windows by their running totals, and the rest one by one. */
static void
read_backlog(Backlog *backlog, const DispatcherReport *report)
{
	Window		newest;
	Window		published;
	Window		first;
	Unopened	unopened;

	memset(backlog, 0, sizeof(*backlog));
	if (!window_row_newest(&newest) || !window_row_published(&published))
		return;
	count_unopened(&newest, &unopened);

	backlog->windows = newest.number - published.number;
	backlog->pending = newest.messages - published.messages + unopened.messages + report->deferred_settled;
	if (newest.messages > published.messages && window_row_fetch(published.number + 1, &first))
		backlog->oldest = first.oldest;
	if (backlog->oldest == 0)
		backlog->oldest = unopened.oldest;
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

/* A LogReader. */
static bool
show_message(TupleTableSlot *row, int segment, void *arg)
{
	PendingRows *rows = arg;
	Message		message;

	if (log_row_is_receipt(row))
		return true;
	log_row_message(row, &message);
	put_message(rows->result, &message, NULL);
	return ++rows->count < PENDING_LIMIT;
}

/* A DeferredReader. Dead messages are not pending: outbox.dead_letters shows them. */
static bool
show_deferred(const Deferred *row, void *arg)
{
	PendingRows *rows = arg;

	if (row->state == DEFERRED_WAITING || row->state == DEFERRED_SCHEDULED || row->state == DEFERRED_HELD)
	{
		put_message(rows->result, &row->message, row);
		rows->count++;
	}
	return rows->count < PENDING_LIMIT;
}

/* Adds a row to what outbox.pending shows; deferred is NULL if the message is in the log. */
static void
put_message(ReturnSetInfo *result, const Message *message, const Deferred *deferred)
{
	Datum		values[12];
	bool		isnull[12] = {0};
	int			i = 0;

	values[i++] = Int64GetDatum(message->id);
	values[i++] = PointerGetDatum(message->message_id);
	values[i++] = PointerGetDatum(message->dest);
	values[i++] = TimestampTzGetDatum(message->at);
	isnull[i] = message->cause == NULL;
	values[i++] = PointerGetDatum(message->cause);
	isnull[i] = message->headers == NULL;
	values[i++] = PointerGetDatum(message->headers);
	isnull[i] = message->body == NULL;
	values[i++] = Int32GetDatum(message->body ? toast_raw_datum_size(PointerGetDatum(message->body)) - VARHDRSZ : 0);
	values[i++] = CStringGetTextDatum(pending_state(deferred));
	isnull[i] = deferred == NULL;
	values[i++] = Int32GetDatum(deferred ? deferred->attempts : 0);
	isnull[i] = deferred == NULL;
	values[i++] = TimestampTzGetDatum(deferred ? deferred->next_attempt : 0);
	isnull[i] = deferred == NULL || deferred->last_error == NULL;
	values[i++] = PointerGetDatum(deferred ? deferred->last_error : NULL);
	isnull[i] = message->partition_key == NULL;
	values[i++] = PointerGetDatum(message->partition_key);

	tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
}

/* Returns what outbox.pending calls the state of a message; deferred is NULL if it is in the log. */
static const char *
pending_state(const Deferred *deferred)
{
	if (deferred == NULL)
		return "new";
	return deferred->state == DEFERRED_WAITING ? "deferred" : deferred_state_name(deferred->state);
}

/* Adds the records of a segment of the ring to what outbox.records shows, except forgotten ones. */
static void
show_records(ReturnSetInfo *result, int segment, const Segment *state)
{
	RowScan		scan;

	row_scan_begin(&scan, relations_enter()->segments[RING_RECORD][segment].table);
	while (row_scan_next(&scan))
	{
		TupleTableSlot *row = scan.row;
		Datum		values[5];
		bool		isnull[5] = {0};
		TransactionId in_progress;
		char	   *endpoint;

		slot_getallattrs(row);
		if (forgotten_look(DatumGetUUIDP(row->tts_values[0]), &in_progress) == FORGOTTEN_YES)
			continue;
		endpoint = record_ring_endpoint(row);
		isnull[0] = endpoint == NULL;
		isnull[1] = row->tts_isnull[3];
		values[0] = endpoint ? CStringGetTextDatum(endpoint) : (Datum) 0;
		values[1] = row->tts_values[3];
		values[2] = row->tts_values[1];
		values[3] = Int32GetDatum(segment);
		values[4] = CStringGetTextDatum(segment_state_name(state->state));
		tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
	}
	row_scan_end(&scan);
}
