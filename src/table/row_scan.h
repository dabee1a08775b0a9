/*
 * row_scan.h
 *		Reading all rows of one of our tables.
 */
#ifndef OUTBOX_ROW_SCAN_H
#define OUTBOX_ROW_SCAN_H

#include "access/tableam.h"
#include "executor/tuptable.h"

#include "src/table/moment.h"
#include "src/table/own_table.h"

typedef struct RowScan
{
	TupleTableSlot *row;		/* found last */
	Relation	table;
	TableScanDesc scan;
	bool		has_moment;		/* rows of the table are updated */
	Moment		moment;
} RowScan;

extern void row_scan_begin(RowScan *scan, Oid table, OwnTable kind);
extern void row_scan_begin_updated(RowScan *scan, Oid table, OwnTable kind);
extern bool row_scan_next(RowScan *scan);
extern void row_scan_end(RowScan *scan);

#endif							/* OUTBOX_ROW_SCAN_H */
