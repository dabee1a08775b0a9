/*
 * returned_rows.h
 *		Appends to the log what a statement returns from outbox.deferred.
 */
#ifndef OUTBOX_RETURNED_ROWS_H
#define OUTBOX_RETURNED_ROWS_H

#include "bgworker/process/transaction.h"
#include "src/log/log.h"

/* What the statement must return, of outbox.deferred d; append_row() knows their order. */
#define RETURNED_COLUMNS \
	"d.id, d.key, d.message_id, d.dest, d.cause, d.enqueued_at, d.headers, d.body, d.log_tx, d.partition_key, d.stream"

extern int64 returned_rows_append(Statement *statement, Datum *values,
								  void (*visit) (const Message *message), int64 *bytes);
extern int64 returned_rows_take_failed(void);

#endif							/* OUTBOX_RETURNED_ROWS_H */
