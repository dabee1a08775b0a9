/*
 * pending_view.c
 *		What outbox.pending shows: messages that are not in Redis yet.
 *
 * Reads what is committed now: of the log what no window that is published holds, and
 * deferred messages. It shows no more than PENDING_LIMIT of them, so that the answer comes
 * in milliseconds whatever is pending, and holds no lock when it returns.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/window_row.h"

/* Rows that outbox.pending shows. */
#define PENDING_LIMIT	1000

/* The rows of outbox.pending: as many as are shown, in no order. */
typedef struct PendingRows
{
	ReturnSetInfo *result;
	int			count;
} PendingRows;

static bool show_message(TupleTableSlot *row, int segment, void *arg);
static bool show_deferred(const Deferred *row, void *arg);
static void put_message(ReturnSetInfo *result, const Message *message, const Deferred *deferred);
static const char *pending_state(const Deferred *deferred);

PG_FUNCTION_INFO_V1(outbox_read_pending);

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
