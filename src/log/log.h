/*
 * log.h
 *		The log: outgoing messages, and receipts of incoming ones, in the order of the calls.
 */
#ifndef OUTBOX_LOG_H
#define OUTBOX_LOG_H

#include "executor/tuptable.h"
#include "utils/jsonb.h"
#include "utils/snapshot.h"
#include "utils/uuid.h"

#include "src/log/window_row.h"
#include "src/record/record_name.h"

/* A row of log_N that is a message. */
typedef struct Message
{
	int64		id;
	FullTransactionId tx;
	TimestampTz at;
	bool		has_key;		/* whether it belongs to a record */
	bool		is_of_default;	/* the record of cause and the default
								 * endpoint; then message_key() has the key */
	pg_uuid_t	key;
	text	   *message_id;
	bool		has_uuid;		/* whether message_id is known to be the usual
								 * form of a UUID */
	pg_uuid_t	uuid;
	text	   *dest;
	text	   *cause;			/* or NULL */
	Jsonb	   *headers;		/* or NULL */
	bytea	   *body;			/* maybe still out of line */
	TimestampTz deliver_at;		/* 0 = at once */
	text	   *partition_key;	/* whose messages stay in order, or NULL */
	text	   *stream;			/* that it must go to because it was there and
								 * Redis has lost it; NULL = any */
} Message;

/*
 * A row of log_N that is a receipt: the endpoint has processed the incoming
 * message msgid, which is to be propagated.
 */
typedef struct Receipt
{
	TimestampTz at;
	pg_uuid_t	key;			/* of the record */
	text	   *endpoint;		/* NULL = the one that the key was made for */
	text	   *msgid;
} Receipt;

/* Reads a row that log_scan() found; returns false to end the scan. */
typedef bool (*LogReader) (TupleTableSlot *row, int segment, void *arg);

/* log_append.c */
extern void log_append(const Message *message);
extern void log_append_receipt(const Receipt *receipt);
extern void log_append_receipt_of(const Message *message);

/* log_size.c */
extern int64 log_size(void);
extern bool log_size_is_full(int64 size);
extern void log_size_check(void);

/* log_scan.c */
extern void log_scan(Snapshot visible, const SnapshotValue *after, const SnapshotValue *upto,
					 LogReader reader, void *arg);
extern bool log_scan_carries_since(const SnapshotValue *after, const RecordName *record);
extern void log_scan_transaction(FullTransactionId tx, LogReader reader, void *arg);
extern bool log_scan_carries(FullTransactionId tx, const RecordName *record);
extern bool log_scan_carries_for(FullTransactionId tx, const RecordName *record, const DestinationSet *dests);
extern int64 log_scan_highest_id(void);
extern bool log_scan_read_body(FullTransactionId tx, Message *message);

/* log_row.c */
extern bool log_row_is_receipt(TupleTableSlot *row);
extern bool log_row_is_whole(TupleTableSlot *row);
extern int64 log_row_id(TupleTableSlot *row);
extern bool log_row_is_of(TupleTableSlot *row, const RecordName *record);
extern FullTransactionId log_row_tx(TupleTableSlot *row);
extern Oid	log_row_database(TupleTableSlot *row);
extern TimestampTz log_row_at(TupleTableSlot *row);
extern void log_row_message(TupleTableSlot *row, Message *message);
extern void log_row_envelope(TupleTableSlot *row, Message *message);
extern void log_row_origin(TupleTableSlot *row, Message *message);
extern void log_row_receipt(TupleTableSlot *row, Receipt *receipt);
extern bool message_key(const Message *message, pg_uuid_t *key);

#endif							/* OUTBOX_LOG_H */
