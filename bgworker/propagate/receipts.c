/*
 * receipts.c
 *		Reads the receipts of windows, page by page.
 *
 * Called by store_propagation.c, for a store, and by marking.c and marking_progress.c, for a
 * custom record table: each has a position of its own, and so a reader. One user
 * transaction may have millions of receipts. So the places of the receipts of
 * some windows are collected first, in memory up to a limit and in a file
 * beyond it (sorted_rows.c). Then they are read a page at a time, each page in
 * a transaction that has ended before they are propagated.
 *
 * A reader has no state that is not in the log: it may be thrown away at any
 * time, and the next one begins with the same windows again.
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/snapmgr.h"

#include "bgworker/process/transaction.h"
#include "bgworker/propagate/receipts.h"
#include "bgworker/window/row_reader.h"
#include "src/kill_point.h"

#define PAGE_ROWS	4096		/* read in one transaction */

static bool collect_receipts(ReceiptReader *reader, int64 from, int64 upto);
static int64 end_of(int64 from, int64 upto, const Window *last);
static bool collect_receipt(TupleTableSlot *row, int segment, void *arg);
static bool fetch_receipt(RowReader *reader, const LogRow *place, Receipt *receipt);

/*
 * Reads the next receipts of the windows after `from` up to `upto`, in the
 * order of their ids, until `visit` has enough or the page ends. Continues
 * where the last call stopped, whatever `upto` is then: reader->upto says
 * where these windows end, which may be at `from` as long as the newest ones
 * are missing. Returns RECEIPTS_ENDED if there are no more.
 */
ReceiptResult
receipts_read(ReceiptReader *reader, int64 from, int64 upto, ReceiptVisit visit, void *arg)
{
	RowReader	rows = {0};
	int64		end;
	bool		moved = false;
	bool		enough = false;

	if (!transaction_begin("reading receipts"))
		return RECEIPTS_REFUSED;
	if (!reader->collected && !collect_receipts(reader, from, upto))
		elog(ERROR, "no window is left");

	end = Min(reader->next + PAGE_ROWS, reader->rows.n);
	while (reader->next < end && !moved && !enough)
	{
		Receipt		receipt;

		moved = !fetch_receipt(&rows, sorted_rows_get(&reader->rows, reader->next), &receipt);
		if (moved)
			break;
		enough = !visit(&receipt, arg);
		reader->next++;
	}
	row_reader_close(&rows);
	transaction_commit();
	KILL_POINT("receipts_read");

	/* The table was rewritten: read all of these windows once more. */
	if (moved)
	{
		receipts_forget(reader);
		return RECEIPTS_MORE;
	}
	return reader->next < reader->rows.n ? RECEIPTS_MORE : RECEIPTS_ENDED;
}

/* Makes the next call begin at the beginning. */
void
receipts_forget(ReceiptReader *reader)
{
	if (reader->collected)
		sorted_rows_free(&reader->rows);
	reader->collected = false;
	reader->next = 0;
}

/* Collects the places of the receipts, and the window that a watermark will name. */
static bool
collect_receipts(ReceiptReader *reader, int64 from, int64 upto)
{
	Window		before;
	Window		last;

	if (!window_row_at(upto, &last))
		return false;
	if (!window_row_at(from, &before))
		before = last;
	memset(&reader->rows, 0, sizeof(reader->rows));
	reader->collected = true;
	reader->next = 0;
	reader->upto = end_of(from, upto, &last);
	reader->last = last.number;
	reader->uuid = last.uuid;
	log_scan(InvalidSnapshot, before.snapshot, last.snapshot, collect_receipt, &reader->rows);
	sorted_rows_sort(&reader->rows);
	return true;
}

/*
 * Returns up to which window the receipts are read that lie before the end of `last`, the newest
 * one that is kept of those up to `upto`. Windows that are missing are read with the next one that
 * is kept; as long as there is none behind them, they are not read.
 */
static int64
end_of(int64 from, int64 upto, const Window *last)
{
	Window		next;

	return last->number == upto || window_row_after(upto, &next) ? upto : Max(from, last->number);
}

/* A LogReader: collects the place of a receipt. */
static bool
collect_receipt(TupleTableSlot *row, int segment, void *arg)
{
	if (log_row_is_receipt(row))
		sorted_rows_add(arg, &(LogRow) {.id = log_row_id(row), .tid = row->tts_tid, .segment = segment});
	return true;
}

/* Fetches a receipt. Returns false if it is no longer there. */
static bool
fetch_receipt(RowReader *reader, const LogRow *place, Receipt *receipt)
{
	TupleTableSlot *row = row_reader_fetch(reader, place);

	if (row == NULL || !log_row_is_receipt(row))
		return false;
	log_row_receipt(row, receipt);
	return true;
}
