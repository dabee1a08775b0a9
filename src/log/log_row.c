/*
 * log_row.c
 *		A row of the log as a message, and a message as a row.
 *
 * Called by log_append.c, and by everything that reads rows of the log; no
 * other file uses its columns. Besides messages the log holds receipts: rows
 * without dest which say that an endpoint has processed an incoming message.
 * They are never sent; bgworker/propagate/ reads them window by window. Every
 * reader of rows must distinguish them from messages.
 *
 * Columns that are often NULL stand last, where they take no space. For the same
 * reason an id that is a UUID is stored as one, in 16 bytes instead of 36, even
 * if the application has made it. No other file knows of this; elsewhere an id is text.
 *
 * Which columns a message or a receipt has is ensured by a check constraint, which the owner of
 * the table can drop: so readers look whether a column that they need is NULL.
 *
 * Nor has a message the key of its record if that is of the default endpoint: the
 * key is a hash of the endpoint and of cause, which is there. A message that has a
 * cause and belongs to no record, as a copy that was sent again, has NO_RECORD as key.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "src/compat.h"
#include "src/log/log_row.h"
#include "src/table/row_write.h"
#include "src/unique_id.h"
#include "src/utf8.h"

/* Of 128 bits of a hash all are never 0. */
static const pg_uuid_t NO_RECORD;

static void set_key(Datum *values, bool *isnull, const Message *message);
static void read_key(TupleTableSlot *row, Message *message);
static void set_common(Datum *values, bool *isnull, int64 id, TimestampTz at);
static bool all_null(TupleTableSlot *row, int first, int last);
static void require_value(TupleTableSlot *row, int column);

/* Inserts a message of the caller's top-level transaction. The caller holds RowExclusiveLock. */
void
log_row_insert(Relation table, const Message *message)
{
	Datum		values[LOG_NCOLUMNS];
	bool		isnull[LOG_NCOLUMNS];
	pg_uuid_t	uuid = message->uuid;
	bool		is_uuid = message->has_uuid || unique_id_from_text(message->message_id, &uuid);

	set_common(values, isnull, message->id, message->at);
	values[LOG_COL_MESSAGE_UUID - 1] = UUIDPGetDatum(&uuid);
	values[LOG_COL_DEST - 1] = PointerGetDatum(message->dest);
	values[LOG_COL_BODY - 1] = PointerGetDatum(message->body);
	values[LOG_COL_CAUSE - 1] = PointerGetDatum(message->cause);
	values[LOG_COL_HEADERS - 1] = PointerGetDatum(message->headers);
	values[LOG_COL_MESSAGE_ID - 1] = PointerGetDatum(message->message_id);
	values[LOG_COL_DELIVER_AT - 1] = TimestampTzGetDatum(message->deliver_at);
	values[LOG_COL_PARTITION_KEY - 1] = PointerGetDatum(message->partition_key);
	values[LOG_COL_STREAM - 1] = PointerGetDatum(message->stream);
	isnull[LOG_COL_MESSAGE_UUID - 1] = !is_uuid;
	isnull[LOG_COL_DEST - 1] = false;
	isnull[LOG_COL_BODY - 1] = false;
	isnull[LOG_COL_CAUSE - 1] = message->cause == NULL;
	isnull[LOG_COL_HEADERS - 1] = message->headers == NULL;
	isnull[LOG_COL_MESSAGE_ID - 1] = is_uuid;
	isnull[LOG_COL_DELIVER_AT - 1] = message->deliver_at == 0;
	isnull[LOG_COL_PARTITION_KEY - 1] = message->partition_key == NULL;
	isnull[LOG_COL_STREAM - 1] = message->stream == NULL;
	set_key(values, isnull, message);

	row_append(table, LOG_COL_TX, LOG_NCOLUMNS, values, isnull);
}

/* The same for a receipt. */
void
log_row_insert_receipt(Relation table, int64 id, const Receipt *receipt)
{
	Datum		values[LOG_NCOLUMNS];
	bool		isnull[LOG_NCOLUMNS];

	set_common(values, isnull, id, receipt->at);
	values[LOG_COL_KEY - 1] = UUIDPGetDatum(&receipt->key);
	values[LOG_COL_ENDPOINT - 1] = PointerGetDatum(receipt->endpoint);
	values[LOG_COL_MSGID - 1] = PointerGetDatum(receipt->msgid);
	isnull[LOG_COL_KEY - 1] = false;
	isnull[LOG_COL_ENDPOINT - 1] = receipt->endpoint == NULL;
	isnull[LOG_COL_MSGID - 1] = false;

	row_append(table, LOG_COL_TX, LOG_NCOLUMNS, values, isnull);
}

/* Sets the key, where cause does not tell it. */
static void
set_key(Datum *values, bool *isnull, const Message *message)
{
	const pg_uuid_t *key = message->has_key ? &message->key : &NO_RECORD;

	values[LOG_COL_KEY - 1] = UUIDPGetDatum(key);
	isnull[LOG_COL_KEY - 1] = message->has_key ? message->is_of_default : message->cause == NULL;
}

/* Sets what messages and receipts both have; all other columns are NULL after it. */
static void
set_common(Datum *values, bool *isnull, int64 id, TimestampTz at)
{
	memset(isnull, true, LOG_NCOLUMNS * sizeof(bool));
	values[LOG_COL_ID - 1] = Int64GetDatum(id);
	values[LOG_COL_TX - 1] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	values[LOG_COL_AT - 1] = TimestampTzGetDatum(at);
	values[LOG_COL_DATABASE - 1] = ObjectIdGetDatum(MyDatabaseId);
	isnull[LOG_COL_ID - 1] = false;
	isnull[LOG_COL_TX - 1] = false;
	isnull[LOG_COL_AT - 1] = false;
	isnull[LOG_COL_DATABASE - 1] = false;
}

/* Check whether a row is a receipt and not a message. */
bool
log_row_is_receipt(TupleTableSlot *row)
{
	return slot_attisnull(row, LOG_COL_DEST);
}

/*
 * Check whether a row is either a message or a receipt, with all that belongs to
 * it, as the check constraint of the table demands; one that was written by SQL
 * may be neither.
 */
bool
log_row_is_whole(TupleTableSlot *row)
{
	bool		has_key = !slot_attisnull(row, LOG_COL_KEY);
	bool		has_endpoint = !slot_attisnull(row, LOG_COL_ENDPOINT);
	bool		has_msgid = !slot_attisnull(row, LOG_COL_MSGID);
	bool		has_body = !slot_attisnull(row, LOG_COL_BODY);

	if (log_row_is_receipt(row))
		return has_key && has_msgid && !has_body && slot_attisnull(row, LOG_COL_MESSAGE_UUID) &&
			slot_attisnull(row, LOG_COL_CAUSE) && all_null(row, LOG_COL_HEADERS, LOG_COL_STREAM);
	return has_body && !has_endpoint && !has_msgid &&
		slot_attisnull(row, LOG_COL_MESSAGE_UUID) != slot_attisnull(row, LOG_COL_MESSAGE_ID);
}

/* Check whether all of these columns are NULL. */
static bool
all_null(TupleTableSlot *row, int first, int last)
{
	for (int column = first; column <= last; column++)
	{
		if (!slot_attisnull(row, column))
			return false;
	}
	return true;
}

/* Raises XX001 if a column is NULL that a message or a receipt must have. */
static void
require_value(TupleTableSlot *row, int column)
{
	if (slot_attisnull(row, column))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row %lld of the log is neither a message nor a receipt", (long long) log_row_id(row)),
				 errdetail("Its column \"%s\" is NULL.",
						   NameStr(TupleDescAttr(row->tts_tupleDescriptor, column - 1)->attname))));
}

/* Returns the id of a row. */
int64
log_row_id(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetInt64(slot_getattr(row, LOG_COL_ID, &isnull));
}

/* Check whether a row is a message of a record, and not its receipt. */
bool
log_row_is_of(TupleTableSlot *row, const RecordName *record)
{
	bool		isnull;
	Datum		key = slot_getattr(row, LOG_COL_KEY, &isnull);
	text	   *cause;

	if (log_row_is_receipt(row))
		return false;
	if (!isnull)
		return memcmp(DatumGetUUIDP(key), &record->key, sizeof(record->key)) == 0;
	if (slot_attisnull(row, LOG_COL_CAUSE) || strcmp(record->endpoint, DEFAULT_ENDPOINT) != 0)
		return false;
	cause = DatumGetTextPP(slot_getattr(row, LOG_COL_CAUSE, &isnull));
	return VARSIZE_ANY_EXHDR(cause) == strlen(record->msgid) &&
		memcmp(VARDATA_ANY(cause), record->msgid, strlen(record->msgid)) == 0;
}

/* Returns the top-level transaction that enqueued a row. */
FullTransactionId
log_row_tx(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetFullTransactionId(slot_getattr(row, LOG_COL_TX, &isnull));
}

/* Returns the database that a row was enqueued in: this one, or one that it is a copy of. */
Oid
log_row_database(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetObjectId(slot_getattr(row, LOG_COL_DATABASE, &isnull));
}

/* Returns when a row was enqueued. */
TimestampTz
log_row_at(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetTimestampTz(slot_getattr(row, LOG_COL_AT, &isnull));
}

/*
 * Reads a message. The body is not fetched if it is stored out of line; everything
 * else is fetched into palloc'd memory.
 */
void
log_row_message(TupleTableSlot *row, Message *message)
{
	log_row_envelope(row, message);
	require_value(row, LOG_COL_BODY);
	message->headers = slot_attisnull(row, LOG_COL_HEADERS) ? NULL : DatumGetJsonbP(row->tts_values[LOG_COL_HEADERS - 1]);
	message->body = (bytea *) DatumGetPointer(row->tts_values[LOG_COL_BODY - 1]);
}

/* The same without headers and body, which may be damaged and are NULL in the result. */
void
log_row_envelope(TupleTableSlot *row, Message *message)
{
	log_row_origin(row, message);
	if (!message->has_uuid)
		require_value(row, LOG_COL_MESSAGE_ID);
	message->message_id = message->has_uuid ? unique_id_to_text(&message->uuid) :
		DatumGetTextPP(row->tts_values[LOG_COL_MESSAGE_ID - 1]);
}

/* The same without message_id, too, for readers of many rows: what is left takes no memory. */
void
log_row_origin(TupleTableSlot *row, Message *message)
{
	slot_getallattrs(row);
	require_value(row, LOG_COL_DEST);
#define COLUMN(col) (row->tts_values[(col) - 1])
#define ISNULL(col) (row->tts_isnull[(col) - 1])
	message->id = DatumGetInt64(COLUMN(LOG_COL_ID));
	message->tx = DatumGetFullTransactionId(COLUMN(LOG_COL_TX));
	message->at = DatumGetTimestampTz(COLUMN(LOG_COL_AT));
	message->message_id = NULL;
	message->has_uuid = !ISNULL(LOG_COL_MESSAGE_UUID);
	if (message->has_uuid)
		message->uuid = *DatumGetUUIDP(COLUMN(LOG_COL_MESSAGE_UUID));
	message->dest = DatumGetTextPP(COLUMN(LOG_COL_DEST));
	message->cause = ISNULL(LOG_COL_CAUSE) ? NULL : DatumGetTextPP(COLUMN(LOG_COL_CAUSE));
	message->headers = NULL;
	message->body = NULL;
	message->deliver_at = ISNULL(LOG_COL_DELIVER_AT) ? 0 : DatumGetTimestampTz(COLUMN(LOG_COL_DELIVER_AT));
	message->partition_key = ISNULL(LOG_COL_PARTITION_KEY) ? NULL : DatumGetTextPP(COLUMN(LOG_COL_PARTITION_KEY));
	message->stream = ISNULL(LOG_COL_STREAM) ? NULL : DatumGetTextPP(COLUMN(LOG_COL_STREAM));
#undef COLUMN
#undef ISNULL
	read_key(row, message);
}

/* Reads to which record a message belongs; its other columns have been read. */
static void
read_key(TupleTableSlot *row, Message *message)
{
	bool		isnull = row->tts_isnull[LOG_COL_KEY - 1];

	if (!isnull)
		message->key = *DatumGetUUIDP(row->tts_values[LOG_COL_KEY - 1]);
	message->is_of_default = isnull && message->cause != NULL;
	message->has_key = message->is_of_default || (!isnull && memcmp(&message->key, &NO_RECORD, sizeof(NO_RECORD)) != 0);
}

/*
 * Sets the key of the record that a message belongs to. Returns false if it belongs to none;
 * nor does one that came by a dump of another database, with a cause that cannot be
 * converted: no record can have such a name here.
 */
bool
message_key(const Message *message, pg_uuid_t *key)
{
	if (!message->is_of_default)
		*key = message->key;
	else if (utf8_is_possible(message->cause))
		record_name_make_key(DEFAULT_ENDPOINT, text_to_cstring(message->cause), key);
	else
		return false;
	return message->has_key;
}

/* Reads a receipt. Its strings are those of the row, unless they are compressed. */
void
log_row_receipt(TupleTableSlot *row, Receipt *receipt)
{
	bool		isnull;
	Datum		endpoint = slot_getattr(row, LOG_COL_ENDPOINT, &isnull);

	require_value(row, LOG_COL_KEY);
	require_value(row, LOG_COL_MSGID);
	receipt->endpoint = isnull ? NULL : DatumGetTextPP(endpoint);
	receipt->at = log_row_at(row);
	receipt->key = *DatumGetUUIDP(slot_getattr(row, LOG_COL_KEY, &isnull));
	receipt->msgid = DatumGetTextPP(slot_getattr(row, LOG_COL_MSGID, &isnull));
}
