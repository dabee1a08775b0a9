/*
 * receipts.h
 *		Reads the receipts of windows, page by page.
 */
#ifndef OUTBOX_RECEIPTS_H
#define OUTBOX_RECEIPTS_H

#include "bgworker/window/sorted_rows.h"
#include "src/log/log.h"

/* State of reading receipts; all zero = at the beginning. */
typedef struct ReceiptReader
{
	bool		collected;
	SortedRows	rows;			/* places of the receipts */
	int64		next;			/* the row to be read next */
	int64		upto;			/* newest window that they are from */
	int64		last;			/* newest window up to that one which exists */
	pg_uuid_t	uuid;			/* its uuid */
} ReceiptReader;

typedef enum ReceiptResult
{
	RECEIPTS_MORE,
	RECEIPTS_ENDED,
	RECEIPTS_REFUSED			/* the extension is being dropped */
} ReceiptResult;

/* Takes a receipt; returns false when it has enough. */
typedef bool (*ReceiptVisit) (const Receipt *receipt, void *arg);

extern ReceiptResult receipts_read(ReceiptReader *reader, int64 from, int64 upto, ReceiptVisit visit, void *arg);
extern void receipts_forget(ReceiptReader *reader);

#endif							/* OUTBOX_RECEIPTS_H */
