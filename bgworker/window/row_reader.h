/*
 * row_reader.h
 *		Fetches rows of the log from their places.
 */
#ifndef OUTBOX_ROW_READER_H
#define OUTBOX_ROW_READER_H

#include "executor/tuptable.h"
#include "utils/relcache.h"

#include "bgworker/window/sorted_rows.h"
#include "src/ring/ring.h"

/* The tables that were read from in this transaction; all zero = none yet. */
typedef struct RowReader
{
	Relation	tables[MAX_SEGMENTS];
	struct IndexFetchTableData *fetches[MAX_SEGMENTS];	/* each keeps the page
														 * it read last */
	TupleTableSlot *rows[MAX_SEGMENTS];
	BlockNumber blocks[MAX_SEGMENTS];	/* that the table had when it was
										 * opened */
} RowReader;

extern TupleTableSlot *row_reader_fetch(RowReader *reader, const LogRow *place);
extern TupleTableSlot *row_reader_fetch_message(RowReader *reader, const LogRow *place);
extern void row_reader_close(RowReader *reader);

#endif							/* OUTBOX_ROW_READER_H */
