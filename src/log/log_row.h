/*
 * log_row.h
 *		The columns of the log; for log_row.c and those that read by an index, or sort.
 */
#ifndef OUTBOX_LOG_ROW_H
#define OUTBOX_LOG_ROW_H

#include "src/log/log.h"

/* Columns of log_N. */
enum
{
	LOG_COL_ID = 1,
	LOG_COL_TX,
	LOG_COL_AT,
	LOG_COL_DATABASE,
	LOG_COL_MESSAGE_UUID,
	LOG_COL_DEST,
	LOG_COL_BODY,
	LOG_COL_CAUSE,
	LOG_COL_KEY,
	LOG_COL_HEADERS,
	LOG_COL_MESSAGE_ID,
	LOG_COL_DELIVER_AT,
	LOG_COL_PARTITION_KEY,
	LOG_COL_STREAM,
	LOG_COL_ENDPOINT,
	LOG_COL_MSGID,
	LOG_NCOLUMNS = LOG_COL_MSGID
};

extern void log_row_insert(Relation table, const Message *message);
extern void log_row_insert_receipt(Relation table, int64 id, const Receipt *receipt);

#endif							/* OUTBOX_LOG_ROW_H */
