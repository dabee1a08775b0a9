/*
 * returned_rows.c
 *		Appends to the log what a statement returns from outbox.deferred.
 *
 * Called by due_messages.c, which chooses the rows, in a transaction of its own. A
 * message keeps its id, and its row stays as a tombstone (deferral.c). A body that could
 * not be read when the message was deferred is read from the log now. Never chooses,
 * and never sends.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/timestamp.h"

#include "bgworker/defer/reload_pace.h"
#include "bgworker/defer/returned_rows.h"
#include "bgworker/process/transaction.h"
#include "src/log/log.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/*
 * Writes the headers and body that could not be read before; schedules the
 * message again if $4 is not NULL.
 */
static Statement complete = {
	"UPDATE outbox.deferred SET headers = $2, body = $3, log_tx = NULL, next_attempt = coalesce($4, next_attempt), "
	"state = CASE WHEN $4 IS NULL THEN state ELSE 'scheduled' END, "
	"returned_tx = CASE WHEN $4 IS NULL THEN returned_tx END WHERE id = $1",
	4, {INT8OID, JSONBOID, BYTEAOID, TIMESTAMPTZOID}
};

static int64 being_returned;	/* the message being returned; 0 = none */

static bool append_row(HeapTuple row, TupleDesc columns, Message *message);
static bool read_body(Message *message, FullTransactionId log_tx);

/* Returns the message at which the last call failed, once; 0 = none. */
int64
returned_rows_take_failed(void)
{
	int64		failed = being_returned;

	being_returned = 0;
	return failed;
}

/*
 * Runs a statement that returns RETURNED_COLUMNS, and appends their messages to
 * the log; `visit` is called for each, and the sizes of their bodies are added to *bytes,
 * unless these are NULL. Returns how many there were.
 */
int64
returned_rows_append(Statement *statement, Datum *values, void (*visit) (const Message *message), int64 *bytes)
{
	SPITupleTable *rows;
	int64		n;
	int64		returned = 0;

	own_table_require(relations_enter()->deferred, OWN_DEFERRED);
	SPI_connect();
	n = transaction_run(statement, values, NULL);
	own_rows_require(ROWS_RETURNED);
	rows = SPI_tuptable;
	for (int64 i = 0; i < n; i++)
	{
		Message		message;

		if (append_row(rows->vals[i], rows->tupdesc, &message))
		{
			returned++;
			if (bytes)
				*bytes += toast_raw_datum_size(PointerGetDatum(message.body));
			if (visit)
				visit(&message);
		}
		being_returned = 0;
	}
	SPI_finish();
	return returned;
}

/*
 * Returns a message to the log. Returns false if its body could be read only
 * now, and shows that it is scheduled for later.
 */
static bool
append_row(HeapTuple row, TupleDesc columns, Message *message)
{
	Datum		values[11];
	bool		isnull[11];

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
	message->body = isnull[7] ? NULL : (bytea *) DatumGetPointer(values[7]);
	message->partition_key = isnull[9] ? NULL : DatumGetTextPP(values[9]);
	message->stream = isnull[10] ? NULL : DatumGetTextPP(values[10]);
	if (message->body == NULL &&
		!read_body(message, isnull[8] ? InvalidFullTransactionId : DatumGetFullTransactionId(values[8])))
		return false;
	log_append(message);
	log_append_receipt_of(message);
	return true;
}

/*
 * Reads headers and body that could not be read before from the log. Returns
 * false if the message is scheduled for later.
 */
static bool
read_body(Message *message, FullTransactionId log_tx)
{
	bool		is_for_later;

	if (!FullTransactionIdIsValid(log_tx) || !log_scan_read_body(log_tx, message))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the log no longer has the body of message %lld", (long long) message->id)));
	is_for_later = message->deliver_at > GetCurrentTimestamp();
	SPI_connect();
	(void) transaction_run(&complete,
						   (Datum[]) {
							   Int64GetDatum(message->id), PointerGetDatum(message->headers),
							   PointerGetDatum(message->body), TimestampTzGetDatum(message->deliver_at)
						   },
						   message->headers ? (is_for_later ? NULL : "   n") : (is_for_later ? " n  " : " n n"));
	SPI_finish();
	message->deliver_at = 0;

	/* It may have been dead until now; its time was not known. */
	if (is_for_later)
		reload_pace_ask();
	return !is_for_later;
}
