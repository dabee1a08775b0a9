/*
 * enqueued.c
 *		outbox_enqueued(): the messages of the current transaction.
 *
 * For tests, which may then be rolled back. It must never show messages of
 * other transactions.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/log/log.h"

static bool show_enqueued(TupleTableSlot *row, int segment, void *arg);

PG_FUNCTION_INFO_V1(outbox_read_enqueued);

/* outbox.read_enqueued() */
Datum
outbox_read_enqueued(PG_FUNCTION_ARGS)
{
	FullTransactionId tx = GetTopFullTransactionIdIfAny();

	InitMaterializedSRF(fcinfo, 0);
	if (FullTransactionIdIsValid(tx))
		log_scan_transaction(tx, show_enqueued, fcinfo->resultinfo);
	return (Datum) 0;
}

/* A LogReader. */
static bool
show_enqueued(TupleTableSlot *row, int segment, void *arg)
{
	ReturnSetInfo *result = arg;
	Message		message;
	Datum		values[8];
	bool		isnull[8] = {0};

	if (log_row_is_receipt(row))
		return true;
	log_row_message(row, &message);
	values[0] = Int64GetDatum(message.id);
	values[1] = PointerGetDatum(message.message_id);
	values[2] = PointerGetDatum(message.dest);
	values[3] = PointerGetDatum(message.cause);
	isnull[3] = message.cause == NULL;
	values[4] = PointerGetDatum(message.headers);
	isnull[4] = message.headers == NULL;
	values[5] = PointerGetDatum(PG_DETOAST_DATUM(PointerGetDatum(message.body)));
	values[6] = TimestampTzGetDatum(message.deliver_at);
	isnull[6] = message.deliver_at == 0;
	values[7] = PointerGetDatum(message.partition_key);
	isnull[7] = message.partition_key == NULL;
	tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
	return true;
}
