/*
 * receipts.h
 *		Reads the receipts of windows, page by page.
 */
#ifndef OUTBOX_RECEIPTS_H
#define OUTBOX_RECEIPTS_H

#include "bgworker/publish/window_rows.h"
#include "src/log/log.h"

/* Where somebody is who reads receipts; all zero = at the beginning. */
typedef struct ReceiptReader
{
	bool		collected;
	WindowRows	rows;			/* of the receipts */
	int64		next;			/* of these */
	int64		upto;			/* newest of the windows that they are of */
	int64		last;			/* the same, as it is kept */
	pg_uuid_t	uuid;			/* of that */
} ReceiptReader;

typedef enum ReceiptResult
{
	RECEIPTS_MORE,
	RECEIPTS_ENDED,
	RECEIPTS_REFUSED			/* the extension is being dropped */
} ReceiptResult;

/* Takes a receipt in; returns false when it has enough. */
typedef bool (*ReceiptVisit) (const Message *receipt, void *arg);

extern ReceiptResult receipts_read(ReceiptReader *reader, int64 from, int64 upto, ReceiptVisit visit, void *arg);
extern void receipts_forget(ReceiptReader *reader);

#endif							/* OUTBOX_RECEIPTS_H */
