/*
 * row_scan.c
 *		Reads all rows of one of our tables that are committed now.
 *
 * Called by functions and views that need a whole table, whatever snapshot their
 * transaction has. Takes AccessShareLock, which is released at once, and no
 * predicate locks.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "src/table/own_table.h"
#include "src/table/row_scan.h"

static void open_table(RowScan *scan, Oid table, OwnTable kind);

/* Begins to read a table to which rows are only appended. */
void
row_scan_begin(RowScan *scan, Oid table, OwnTable kind)
{
	open_table(scan, table, kind);
	scan->has_moment = false;
	scan->scan = table_beginscan(scan->table, SnapshotSelf, 0, NULL);
}

/* Begins to read a table of which rows are updated: one snapshot for all of them. */
void
row_scan_begin_updated(RowScan *scan, Oid table, OwnTable kind)
{
	open_table(scan, table, kind);
	scan->has_moment = true;
	moment_begin(&scan->moment, scan->table);
	scan->scan = table_beginscan(scan->table, scan->moment.scan, 0, NULL);
}

/* Finds the next row. Returns false if there is none. */
bool
row_scan_next(RowScan *scan)
{
	while (table_scan_getnextslot(scan->scan, ForwardScanDirection, scan->row))
	{
		CHECK_FOR_INTERRUPTS();
		if (!scan->has_moment || moment_shows(&scan->moment, scan->row))
			return true;
	}
	return false;
}

/* Ends the scan, after its last row or before. */
void
row_scan_end(RowScan *scan)
{
	table_endscan(scan->scan);
	if (scan->has_moment)
		moment_end(&scan->moment);
	ExecDropSingleTupleTableSlot(scan->row);
	table_close(scan->table, AccessShareLock);
}

/* Opens the table, with a slot for its rows. */
static void
open_table(RowScan *scan, Oid table, OwnTable kind)
{
	scan->table = own_table_open(table, kind, AccessShareLock);
	scan->row = table_slot_create(scan->table, NULL);
}
