/*
 * markers.c
 *		Reads the markers of windows, page by page.
 *
 * Called by handover.c, for a store, and by marking.c, for a user's table: each
 * has a position of its own, and so a reader of its own. There may be millions
 * of markers in one transaction of a user's. So where those of some windows lie
 * is collected first, in memory up to a bound and in a file beyond it
 * (window_rows.c), and then they are read a page at a time, each in a
 * transaction that has ended before anybody is told of them.
 *
 * A reader knows nothing that is not in the log: thrown away at any time, the
 * next one begins with the same windows again.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "bgworker/markers.h"
#include "bgworker/transaction.h"
#include "src/kill_point.h"
#include "src/relations.h"

#define PAGE_ROWS	4096		/* looked at in one transaction */

/* The log slots that a page is read from; opened when first needed. */
typedef struct MarkerPage
{
	Relation	tables[MAX_SLOTS];
	TupleTableSlot *rows[MAX_SLOTS];
} MarkerPage;

static bool collect(MarkerReader *reader, int64 from, int64 upto);
static bool collect_marker(TupleTableSlot *row, int slot, void *arg);
static bool fetch(MarkerPage *page, const LogRow *row, Message *marker);
static void close_page(MarkerPage *page);

/*
 * Reads the next markers of the windows after `from` up to `upto`, in the order
 * of their ids, until `visit` has enough or the page is at its end. Goes on
 * where the last call stopped, whatever `upto` is then: reader->upto tells where
 * these windows end. MARKERS_ENDED if there are no more.
 */
MarkerResult
markers_read(MarkerReader *reader, int64 from, int64 upto, MarkerVisit visit, void *arg)
{
	MarkerPage	page = {0};
	int64		end;
	bool		moved = false;
	bool		enough = false;

	if (!transaction_begin("reading markers"))
		return MARKERS_REFUSED;
	if (!reader->collected && !collect(reader, from, upto))
		elog(ERROR, "no window is left");

	end = Min(reader->next + PAGE_ROWS, reader->rows.n);
	while (reader->next < end && !moved && !enough)
	{
		Message		marker;

		moved = !fetch(&page, window_rows_get(&reader->rows, reader->next), &marker);
		if (moved)
			break;
		enough = !visit(&marker, arg);
		reader->next++;
	}
	close_page(&page);
	transaction_commit();
	KILL_POINT("markers_read");

	/* Somebody has rewritten the table: all of these windows once more. */
	if (moved)
	{
		markers_forget(reader);
		return MARKERS_MORE;
	}
	return reader->next < reader->rows.n ? MARKERS_MORE : MARKERS_ENDED;
}

/* Has the next call begin anew. */
void
markers_forget(MarkerReader *reader)
{
	if (reader->collected)
		window_rows_free(&reader->rows);
	reader->collected = false;
	reader->next = 0;
}

/* Finds out where the markers lie; and in whose name a store is left its mark. */
static bool
collect(MarkerReader *reader, int64 from, int64 upto)
{
	Window		before;
	Window		last;

	if (!window_at(upto, &last))
		return false;
	if (!window_at(from, &before))
		before = last;
	memset(&reader->rows, 0, sizeof(reader->rows));
	reader->collected = true;
	reader->next = 0;
	reader->upto = upto;
	reader->last = last.number;
	reader->uuid = last.uuid;
	log_scan(GetActiveSnapshot(), before.snapshot, last.snapshot, collect_marker, &reader->rows);
	window_rows_sort(&reader->rows);
	return true;
}

/* A LogReader. */
static bool
collect_marker(TupleTableSlot *row, int slot, void *arg)
{
	if (log_row_is_marker(row))
		window_rows_add(arg, &(LogRow) {.id = log_row_id(row), .tid = row->tts_tid, .slot = slot});
	return true;
}

/*
 * Committed and immutable: any snapshot will do. False if it is not there any
 * more: VACUUM FULL moves rows.
 */
static bool
fetch(MarkerPage *page, const LogRow *row, Message *marker)
{
	if (page->tables[row->slot] == NULL)
	{
		Oid			table = relations_enter()->slots[RING_LOG][row->slot].table;

		page->tables[row->slot] = table_open(table, AccessShareLock);
		page->rows[row->slot] = table_slot_create(page->tables[row->slot], NULL);
	}
	if (ItemPointerGetBlockNumber(&row->tid) >= RelationGetNumberOfBlocks(page->tables[row->slot]) ||
		!table_tuple_fetch_row_version(page->tables[row->slot],
									   unconstify(ItemPointerData *, &row->tid),
									   SnapshotAny, page->rows[row->slot]) ||
		log_row_id(page->rows[row->slot]) != row->id ||
		!log_row_is_marker(page->rows[row->slot]))
		return false;
	log_row_message(page->rows[row->slot], marker);
	return true;
}

static void
close_page(MarkerPage *page)
{
	for (int n = 0; n < MAX_SLOTS; n++)
	{
		if (page->tables[n])
		{
			ExecDropSingleTupleTableSlot(page->rows[n]);
			table_close(page->tables[n], AccessShareLock);
		}
	}
}
