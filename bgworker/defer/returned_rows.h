/*
 * returned_rows.h
 *		Appends to the log what a statement returns from outbox.deferred.
 */
#ifndef OUTBOX_RETURNED_ROWS_H
#define OUTBOX_RETURNED_ROWS_H

#include "bgworker/process/transaction.h"
#include "src/log/log.h"

extern int64 returned_rows_append(Statement *statement, Datum *values,
								  void (*visit) (const Message *message), int64 *bytes);
extern int64 returned_rows_take_failed(void);

#endif							/* OUTBOX_RETURNED_ROWS_H */
