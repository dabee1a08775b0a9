/*
 * replay.c
 *		outbox_replay(): sends messages again that have been sent before.
 *
 * Copies what the log retains, within outbox.replay_window or longer, to its
 * end, as part of the caller's transaction: the copies are ordinary messages
 * with the ids that consumers know.
 *
 * They come in the order of the messages, which is not that of their places: the
 * segment that is written may be the first one, and sessions write to different
 * pages. So all rows are sorted first, as for ORDER BY: on disk if they are many.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_operator_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplesort.h"

#include "src/api/caller_check.h"
#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/log_id.h"
#include "src/log/log_row.h"
#include "src/log/window_row.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

/* What is to be sent again. */
typedef struct Wanted
{
	TimestampTz since;
	const text *dest;			/* NULL = all */
	const SnapshotValue *published;
} Wanted;

/* The rows to be sent again, by their ids. */
typedef struct SortedLog
{
	List	   *tables;			/* locked until the copies are made */
	Tuplesortstate *sort;		/* NULL = there are none yet */
	TupleDesc	columns;
} SortedLog;

static bool is_live(int segment);
static void read_segment(int segment, const Wanted *wanted, SortedLog *rows);
static void add_row(SortedLog *rows, const RowScan *scan);
static bool is_wanted(TupleTableSlot *row, const Wanted *wanted);
static bool is_to_replay(const Message *message, const Wanted *wanted);
static int64 append_copies(const SortedLog *rows);
static void append_copy(TupleTableSlot *row);
static void unlock_tables(const SortedLog *rows);

PG_FUNCTION_INFO_V1(outbox_replay);

/* outbox_replay(since, dest) */
Datum
outbox_replay(PG_FUNCTION_ARGS)
{
	Wanted		wanted = {0};
	SortedLog	rows = {0};
	Window		published;
	int64		replayed;

	caller_check_can_write("outbox_replay()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("since must not be null")));
	wanted.since = PG_GETARG_TIMESTAMPTZ(0);
	wanted.dest = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	if (!window_row_published(&published))
		PG_RETURN_INT64(0);
	wanted.published = published.snapshot;

	for (int n = 0; n < relations_enter()->nsegments[RING_LOG]; n++)
	{
		if (is_live(n))
			read_segment(n, &wanted, &rows);
	}
	replayed = append_copies(&rows);
	unlock_tables(&rows);
	PG_RETURN_INT64(replayed);
}

/* Check whether a segment of the log is read. */
static bool
is_live(int segment)
{
	return segment_is_live(&rings_now()->ring[RING_LOG].segments[segment]);
}

/*
 * Reads what is wanted of one segment. It must not be emptied before the copies are made:
 * large values are fetched then. Nor does it lose its tombstones if it was still read when it
 * was locked; without them, what was discarded would count as sent.
 */
static void
read_segment(int segment, const Wanted *wanted, SortedLog *rows)
{
	Oid			table = relations_enter()->segments[RING_LOG][segment].table;
	bool		has_tombstones;
	MemoryContext per_row;
	MemoryContext caller;
	RowScan		scan;

	row_scan_begin(&scan, table, OWN_LOG);
	LockRelationOid(table, AccessShareLock);
	rows->tables = lappend_oid(rows->tables, table);
	has_tombstones = is_live(segment);
	per_row = AllocSetContextCreate(CurrentMemoryContext, "outbox replay", ALLOCSET_SMALL_SIZES);
	caller = CurrentMemoryContext;
	while (has_tombstones && row_scan_next(&scan))
	{
		bool		wants;

		MemoryContextSwitchTo(per_row);
		wants = is_wanted(scan.row, wanted);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(per_row);
		if (wants)
			add_row(rows, &scan);
	}
	MemoryContextDelete(per_row);
	row_scan_end(&scan);
}

/* Adds the row that a scan has found. */
static void
add_row(SortedLog *rows, const RowScan *scan)
{
	AttrNumber	column = LOG_COL_ID;
	Oid			less = Int8LessOperator;
	Oid			collation = InvalidOid;
	bool		nulls_first = false;

	if (rows->sort == NULL)
	{
		rows->columns = CreateTupleDescCopy(RelationGetDescr(scan->table));
		rows->sort = tuplesort_begin_heap(rows->columns, 1, &column, &less, &collation, &nulls_first,
										  work_mem, NULL, TUPLESORT_NONE);
	}
	tuplesort_puttupleslot(rows->sort, scan->row);
}

/* Check whether a row of the log is a message to be sent again. */
static bool
is_wanted(TupleTableSlot *row, const Wanted *wanted)
{
	Message		message;

	if (log_row_is_receipt(row))
		return false;
	log_row_origin(row, &message);
	return is_to_replay(&message, wanted);
}

/*
 * Check whether a message is one of those to be sent again. What is pending comes
 * anyway; what is deferred comes later, or came as another row.
 */
static bool
is_to_replay(const Message *message, const Wanted *wanted)
{
	FullTransactionId returned_tx;
	int			attempts;

	if (message->at < wanted->since || !snapshot_value_sees(wanted->published, message->tx))
		return false;
	if (wanted->dest &&
		(VARSIZE_ANY_EXHDR(message->dest) != VARSIZE_ANY_EXHDR(wanted->dest) ||
		 memcmp(VARDATA_ANY(message->dest), VARDATA_ANY(wanted->dest), VARSIZE_ANY_EXHDR(wanted->dest)) != 0))
		return false;
	return !deferred_find(message->id, &returned_tx, &attempts) ||
		FullTransactionIdEquals(returned_tx, message->tx);
}

/* Copies the rows to the end of the log, in the order of their ids. Returns how many. */
static int64
append_copies(const SortedLog *rows)
{
	MemoryContext per_row;
	MemoryContext caller;
	TupleTableSlot *row;
	int64		appended = 0;

	if (rows->sort == NULL)
		return 0;
	tuplesort_performsort(rows->sort);
	row = MakeSingleTupleTableSlot(rows->columns, &TTSOpsMinimalTuple);
	per_row = AllocSetContextCreate(CurrentMemoryContext, "outbox replay", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(per_row);
	while (tuplesort_gettupleslot(rows->sort, true, false, row, NULL))
	{
		CHECK_FOR_INTERRUPTS();
		append_copy(row);
		MemoryContextReset(per_row);
		appended++;
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(per_row);
	ExecDropSingleTupleTableSlot(row);
	tuplesort_end(rows->sort);
	return appended;
}

/* Appends a copy of a message, which belongs to no record. */
static void
append_copy(TupleTableSlot *row)
{
	Message		message;

	log_row_message(row, &message);
	message.id = log_id_next();
	message.has_key = false;
	message.is_of_default = false;
	message.deliver_at = 0;
	message.stream = NULL;
	log_append(&message);
}

/* Lets the segments that were read be emptied again: the transaction may stay open for long. */
static void
unlock_tables(const SortedLog *rows)
{
	ListCell   *cell;

	foreach(cell, rows->tables)
		UnlockRelationOid(lfirst_oid(cell), AccessShareLock);
}
