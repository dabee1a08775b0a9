/*
 * window_row.c
 *		Reads and writes the rows of the window tables.
 *
 * The dispatcher appends them; sessions read them to know what has been
 * published. A window is where one snapshot ends: its messages are those that
 * its snapshot sees and that of the window before does not. A row is never
 * changed. Window N lies in the table of the log segment that was current when it
 * was opened, and is repeated at the beginning of the next segment's table, so
 * that the end of the window before is always at hand.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/log/window_row.h"
#include "src/shared.h"
#include "src/table/index.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/table/row_write.h"

/* Columns of window_N. */
enum
{
	COL_NUMBER = 1,
	COL_UUID,
	COL_TX,
	COL_SNAPSHOT,
	COL_OPENED_AT,
	COL_PUBLISHED,
	COL_PROPAGATED,
	COL_TARGETS,
	COL_MESSAGES,
	COL_OLDEST,
	NCOLUMNS = COL_OLDEST
};

/* How far our processes say that they have got; -1 = not known. */
typedef struct WindowProgress
{
	int64		published;
	int64		propagated;
	int64		marked;			/* ids are marked in custom record tables */
} WindowProgress;

/* A scan of the table of one segment, in the order of numbers. */
typedef struct WindowScan
{
	Relation	table;
	Relation	index;
	TupleTableSlot *row;
	IndexScanDesc scan;
} WindowScan;

static void read_progress(WindowProgress *progress);
static bool fetch_window(int64 number, Snapshot snapshot, Window *window);
static bool newest_window(Snapshot snapshot, Window *window);
static bool find_window(Snapshot snapshot, ScanDirection direction, StrategyNumber strategy, RegProcedure compare,
						int64 number, Window *window);
static bool read_first(int segment, ScanDirection direction, ScanKey key, Snapshot snapshot, Window *window);
static void read_series(int segment, int64 from, int n, int64 messages, Window *windows);
static void begin_scan(WindowScan *scan, int segment, Snapshot snapshot, ScanKey keys, int nkeys);
static void end_scan(WindowScan *scan);
static void copy_window(TupleTableSlot *row, Window *window);

/* Reads window `number`; its snapshot is palloc'd. Returns false if it is not kept. */
bool
window_row_fetch(int64 number, Window *window)
{
	return fetch_window(number, SnapshotSelf, window);
}

/* Reads the window that was opened last. Returns false only in a broken database. */
bool
window_row_newest(Window *window)
{
	return newest_window(SnapshotSelf, window);
}

/*
 * Reads the newest window that is kept of those up to `number`. Returns false if there
 * is none. Numbers are missing only where something has gone wrong; what was
 * committed between two windows that are kept is found nevertheless.
 */
bool
window_row_at(int64 number, Window *window)
{
	return find_window(SnapshotSelf, BackwardScanDirection, BTLessEqualStrategyNumber, F_INT8LE, number, window);
}

/* Reads the oldest window that is kept of those after `number`. Returns false if there is none. */
bool
window_row_after(int64 number, Window *window)
{
	return find_window(SnapshotSelf, ForwardScanDirection, BTGreaterStrategyNumber, F_INT8GT, number, window);
}

/*
 * Reads n windows from number `from` on, but none after which the database has had more
 * than so many messages in all; their snapshots are palloc'd. Returns how many there are
 * before the first that is not kept.
 */
int
window_row_series(int64 from, int n, int64 messages, Window *windows)
{
	Rings		rings;
	int			kept = 0;

	memset(windows, 0, n * sizeof(Window));
	rings_read(&rings);
	for (int segment = 0; segment < rings.ring[RING_LOG].nsegments; segment++)
	{
		if (segment_is_live(&rings.ring[RING_LOG].segments[segment]))
			read_series(segment, from, n, messages, windows);
	}
	while (kept < n && windows[kept].number != 0)
		kept++;
	return kept;
}

/*
 * Returns the number of the oldest window from which all are kept up to the newest.
 * The tables of the segments overlap by one window each. A segment that was locked
 * while a younger one was emptied leaves a gap: windows before it do not count.
 */
int64
window_row_oldest_number(void)
{
	Rings		rings;
	Window		newest;
	int64		oldest;
	int64		before;

	if (!window_row_newest(&newest))
		elog(ERROR, "no window is left");
	oldest = newest.number;
	rings_read(&rings);
	do
	{
		before = oldest;
		for (int n = 0; n < rings.ring[RING_LOG].nsegments; n++)
		{
			Window		first;
			Window		last;

			if (segment_is_live(&rings.ring[RING_LOG].segments[n]) &&
				read_first(n, ForwardScanDirection, NULL, SnapshotSelf, &first) &&
				read_first(n, BackwardScanDirection, NULL, SnapshotSelf, &last) &&
				first.number < oldest && last.number >= oldest)
				oldest = first.number;
		}
	} while (oldest < before);
	return oldest;
}

/* Writes a window into the table of log segment `segment`. */
void
window_row_append(const Window *window, int segment)
{
	const SegmentRelations *relations = &relations_enter()->segments[RING_LOG][segment];
	Relation	table = own_table_open(relations->window, OWN_WINDOW, RowExclusiveLock);
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {0};

	values[COL_NUMBER - 1] = Int64GetDatum(window->number);
	values[COL_UUID - 1] = UUIDPGetDatum(&window->uuid);
	values[COL_TX - 1] = FullTransactionIdGetDatum(window->tx);
	values[COL_SNAPSHOT - 1] = PointerGetDatum(window->snapshot);
	values[COL_OPENED_AT - 1] = TimestampTzGetDatum(window->opened_at);
	values[COL_PUBLISHED - 1] = Int64GetDatum(window->published);
	values[COL_PROPAGATED - 1] = Int64GetDatum(window->propagated);
	values[COL_TARGETS - 1] = Int64GetDatum(window->targets);
	values[COL_MESSAGES - 1] = Int64GetDatum(window->messages);
	values[COL_OLDEST - 1] = TimestampTzGetDatum(window->oldest);
	isnull[COL_OLDEST - 1] = window->oldest == 0;

	row_append(table, COL_NUMBER, NCOLUMNS, values, isnull);
	table_close(table, NoLock);
}

/*
 * Reads the newest window known to be in Redis: as the dispatcher reports it,
 * or else as the tables do. Returns false if it is not kept.
 */
bool
window_row_published(Window *window)
{
	WindowProgress reported;

	if (!window_row_newest(window))
		return false;
	read_progress(&reported);
	return window_row_at(Max(reported.published, window->published), window);
}

/*
 * The same for the newest window of which all is in Redis, or deferred, but for messages of
 * destinations in *left_out. Returns false also if nothing is left out.
 */
bool
window_row_sent(Window *window, DestinationSet *left_out)
{
	DatabaseShared *shared = shared_mine();
	int64		sent;

	if (shared == NULL)
		return false;
	LWLockAcquire(shared->lock, LW_SHARED);
	sent = shared->report.sent;
	*left_out = shared->report.left_out;
	LWLockRelease(shared->lock);
	return sent >= 0 && window_row_at(sent, window);
}

/*
 * The same for the newest window whose receipts have been propagated: to all, or
 * to custom record tables at least.
 */
bool
window_row_propagated(Window *window, bool to_tables)
{
	WindowProgress reported;
	int64		propagated;

	if (!window_row_newest(window))
		return false;
	read_progress(&reported);
	propagated = to_tables ? Max(reported.propagated, reported.marked) : reported.propagated;
	return window_row_at(propagated >= 0 ? propagated : window->propagated, window);
}

/*
 * The same as the tables show it to a snapshot, and nothing else: what else
 * that snapshot shows agrees with it. Returns false if it shows none.
 */
bool
window_row_published_in(Snapshot snapshot, Window *window)
{
	return newest_window(snapshot, window) && fetch_window(window->published, snapshot, window);
}

/* The same for the newest window whose receipts have been propagated. */
bool
window_row_propagated_in(Snapshot snapshot, Window *window)
{
	return newest_window(snapshot, window) &&
		fetch_window(Min(window->published, window->propagated), snapshot, window);
}

/* Copies how far our processes have got from shared memory, if there is any. */
static void
read_progress(WindowProgress *progress)
{
	DatabaseShared *shared = shared_mine();

	*progress = (WindowProgress) {-1, -1, -1};
	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_SHARED);
	progress->published = shared->report.published;
	progress->propagated = shared->report.propagated;
	progress->marked = shared->books.marked;
	LWLockRelease(shared->lock);
}

/* Reads one window as a snapshot shows it. */
static bool
fetch_window(int64 number, Snapshot snapshot, Window *window)
{
	return find_window(snapshot, ForwardScanDirection, BTEqualStrategyNumber, F_INT8EQ, number, window);
}

/* Reads the window with the highest number that a snapshot shows. */
static bool
newest_window(Snapshot snapshot, Window *window)
{
	return find_window(snapshot, BackwardScanDirection, BTLessEqualStrategyNumber, F_INT8LE, PG_INT64_MAX, window);
}

/*
 * Finds the first window in that direction, in all segments, whose number compares
 * in that way with the one given.
 */
static bool
find_window(Snapshot snapshot, ScanDirection direction, StrategyNumber strategy, RegProcedure compare,
			int64 number, Window *window)
{
	Rings		rings;
	ScanKeyData key;
	bool		found = false;

	rings_read(&rings);
	ScanKeyInit(&key, COL_NUMBER, strategy, compare, Int64GetDatum(number));
	for (int n = 0; n < rings.ring[RING_LOG].nsegments; n++)
	{
		Window		candidate;

		if (!segment_is_live(&rings.ring[RING_LOG].segments[n]) ||
			!read_first(n, direction, &key, snapshot, &candidate))
			continue;
		if (!found || (ScanDirectionIsForward(direction) ? candidate.number < window->number :
					   candidate.number >= window->number))
			*window = candidate;
		found = true;
		if (strategy == BTEqualStrategyNumber)
			break;
	}
	return found;
}

/*
 * Reads the first row of a segment's table in the order of numbers that satisfies
 * the key. Locks are released at once.
 */
static bool
read_first(int segment, ScanDirection direction, ScanKey key, Snapshot snapshot, Window *window)
{
	WindowScan	scan;
	bool		found;

	begin_scan(&scan, segment, snapshot, key, key ? 1 : 0);
	found = index_getnext_slot(scan.scan, direction, scan.row);
	if (found)
		copy_window(scan.row, window);
	end_scan(&scan);
	return found;
}

/* Reads those of them that are in a segment's table. */
static void
read_series(int segment, int64 from, int n, int64 messages, Window *windows)
{
	WindowScan	scan;
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], COL_NUMBER, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	ScanKeyInit(&keys[1], COL_NUMBER, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(from + n));
	begin_scan(&scan, segment, SnapshotSelf, keys, lengthof(keys));
	while (index_getnext_slot(scan.scan, ForwardScanDirection, scan.row))
	{
		Window		window;

		copy_window(scan.row, &window);
		if (window.messages > messages)
			break;
		windows[window.number - from] = window;
	}
	end_scan(&scan);
}

/* Opens the table of a segment for rows that satisfy the keys. */
static void
begin_scan(WindowScan *scan, int segment, Snapshot snapshot, ScanKey keys, int nkeys)
{
	const SegmentRelations *relations = &relations_enter()->segments[RING_LOG][segment];

	scan->table = own_table_open(relations->window, OWN_WINDOW, AccessShareLock);
	scan->index = index_open_on(scan->table, COL_NUMBER, AccessShareLock);
	scan->row = table_slot_create(scan->table, NULL);
	scan->scan = compat_index_beginscan(scan->table, scan->index, snapshot, nkeys);
	index_rescan(scan->scan, keys, nkeys, NULL, 0);
}

/* Closes what begin_scan() has opened. */
static void
end_scan(WindowScan *scan)
{
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->row);
	index_close(scan->index, AccessShareLock);
	table_close(scan->table, AccessShareLock);
}

/* Copies a row, with its snapshot, out of the slot. */
static void
copy_window(TupleTableSlot *row, Window *window)
{
	slot_getallattrs(row);
#define COLUMN(col) (row->tts_values[(col) - 1])
	window->number = DatumGetInt64(COLUMN(COL_NUMBER));
	window->uuid = *DatumGetUUIDP(COLUMN(COL_UUID));
	window->tx = DatumGetFullTransactionId(COLUMN(COL_TX));
	window->snapshot = (SnapshotValue *) PG_DETOAST_DATUM_COPY(COLUMN(COL_SNAPSHOT));
	window->opened_at = DatumGetTimestampTz(COLUMN(COL_OPENED_AT));
	window->published = DatumGetInt64(COLUMN(COL_PUBLISHED));
	window->propagated = DatumGetInt64(COLUMN(COL_PROPAGATED));
	window->targets = DatumGetInt64(COLUMN(COL_TARGETS));
	window->messages = DatumGetInt64(COLUMN(COL_MESSAGES));
	window->oldest = row->tts_isnull[COL_OLDEST - 1] ? 0 : DatumGetTimestampTz(COLUMN(COL_OLDEST));
#undef COLUMN
}
