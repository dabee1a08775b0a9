/*
 * log_scan.c
 *		Reads the messages and receipts of a window or of a transaction.
 *
 * Called by the dispatcher for windows that it opens, reads again or takes
 * receipts from (bgworker/window/window_opening.c, run.c, copied_messages.c,
 * bgworker/propagate/receipts.c, claimed_again.c), and by functions and views
 * that show what is pending or wait for it. Locks are released at once.
 *
 * Ids are not committed in order, so rows must not be read by "id greater than
 * the last one": new is what one snapshot sees and an earlier one does not.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "src/compat.h"
#include "src/log/log_row.h"
#include "src/ring/ring.h"
#include "src/table/commit_log.h"
#include "src/table/index.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/*
 * After this many invisible rows in a row, check whether the rest of their
 * transaction can be skipped.
 */
#define SKIP_AFTER	64

/* This many rows of a segment are looked at for the highest id. */
#define NEWEST_ROWS	1000

/* One segment that is being read. */
typedef struct SegmentScan
{
	int			segment;
	Relation	table;
	Relation	index;
	TupleTableSlot *row;
	IndexScanDesc scan;
	Snapshot	taken;			/* for this scan, or InvalidSnapshot */
	const SnapshotValue *after;
	const SnapshotValue *upto;
	LogReader	reader;
	void	   *arg;
} SegmentScan;

/* What log_scan_carries() looks for. */
typedef struct KeySearch
{
	const RecordName *record;
	bool		found;
	const DestinationSet *dests;	/* that the message is for; NULL = any */
} KeySearch;

/* The message that log_scan_read_body() completes. */
typedef struct BodySearch
{
	Message    *message;
	bool		found;
} BodySearch;

static bool scan_segment(int segment, Snapshot visible, const SnapshotValue *after,
						 const SnapshotValue *upto, LogReader reader, void *arg);
static bool begin_segment_scan(SegmentScan *scan, int segment, Snapshot visible);
static void end_segment_scan(SegmentScan *scan);
static bool read_new_transactions(SegmentScan *scan);
static bool read_ended_transactions(SegmentScan *scan);
static bool read_transaction(SegmentScan *scan, FullTransactionId tx);
static bool read_matching(SegmentScan *scan, ScanKey keys, int nkeys);
static bool is_seen_by_now(const SegmentScan *scan, FullTransactionId tx);
static bool was_rolled_back(FullTransactionId tx);
static FullTransactionId indexed_tx(const SegmentScan *scan);
static bool is_for(TupleTableSlot *row, const DestinationSet *dests);
static bool match_key(TupleTableSlot *row, int segment, void *arg);
static bool copy_body(TupleTableSlot *row, int segment, void *arg);

/*
 * Reads the messages and receipts that `upto` sees and `after` does not, in no
 * particular order. `visible` determines which rows are committed: SnapshotSelf in a transaction
 * that may be serializable, otherwise InvalidSnapshot, as for begin_segment_scan(). Locks are
 * released at once.
 */
void
log_scan(Snapshot visible, const SnapshotValue *after, const SnapshotValue *upto,
		 LogReader reader, void *arg)
{
	Rings		rings;

	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_LOG].nsegments; n++)
	{
		const Segment *segment = &rings.ring[RING_LOG].segments[n];

		/*
		 * A quiet segment was not written to after the transaction that it
		 * names.
		 */
		if (!segment_is_live(segment) ||
			(segment->state == SEGMENT_QUIET && snapshot_value_sees(after, segment->tx)))
			continue;
		if (!scan_segment(n, visible, after, upto, reader, arg))
			return;
	}
}

/*
 * Check whether messages of a record are in the log that `after` does not see.
 * Reads all rows that it does not see; for restored records, for which the
 * transaction that restored their messages is not known.
 */
bool
log_scan_carries_since(const SnapshotValue *after, const RecordName *record)
{
	KeySearch	search = {record, false, NULL};

	log_scan(SnapshotSelf, after, snapshot_value_latest(), match_key, &search);
	return search.found;
}

/* Check whether the log still has messages of a record that `tx` claimed. */
bool
log_scan_carries(FullTransactionId tx, const RecordName *record)
{
	KeySearch	search = {record, false, NULL};

	log_scan_transaction(tx, match_key, &search);
	return search.found;
}

/* Check whether the log has messages of such a record that are for one of these destinations. */
bool
log_scan_carries_for(FullTransactionId tx, const RecordName *record, const DestinationSet *dests)
{
	KeySearch	search = {record, false, dests};

	log_scan_transaction(tx, match_key, &search);
	return search.found;
}

/*
 * Reads headers, body and time of delivery of a message that `tx` enqueued,
 * into palloc'd memory. Returns false if the log does not have it any more.
 */
bool
log_scan_read_body(FullTransactionId tx, Message *message)
{
	BodySearch	search = {message, false};

	log_scan_transaction(tx, copy_body, &search);
	return search.found;
}

/*
 * Reads the messages and receipts of one transaction, which may be our own, in no
 * particular order. Locks are released at once.
 */
void
log_scan_transaction(FullTransactionId tx, LogReader reader, void *arg)
{
	Rings		rings;
	bool		go_on = true;

	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_LOG].nsegments && go_on; n++)
	{
		SegmentScan scan = {.segment = n, .reader = reader, .arg = arg};

		if (segment_is_live(&rings.ring[RING_LOG].segments[n]) && begin_segment_scan(&scan, n, SnapshotSelf))
		{
			go_on = read_transaction(&scan, tx);
			end_segment_scan(&scan);
		}
	}
}

/*
 * Returns the highest id in the log. Only the newest rows of each segment are
 * read, which suffices to keep new messages from sorting before those that are
 * there.
 */
int64
log_scan_highest_id(void)
{
	Rings		rings;
	int64		highest = 0;

	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_LOG].nsegments; n++)
	{
		SegmentScan scan = {0};
		ScanKeyData keys[2];

		if (!segment_is_live(&rings.ring[RING_LOG].segments[n]) || !begin_segment_scan(&scan, n, SnapshotAny))
			continue;
		for (int i = 0; i < lengthof(keys); i++)
			ScanKeyInit(&keys[i], 1, BTGreaterEqualStrategyNumber, F_XID8GE, UInt64GetDatum(0));
		index_rescan(scan.scan, keys, lengthof(keys), NULL, 0);
		for (int i = 0; i < NEWEST_ROWS && index_getnext_slot(scan.scan, BackwardScanDirection, scan.row); i++)
			highest = Max(highest, log_row_id(scan.row));
		end_segment_scan(&scan);
	}
	return highest;
}

/* Reads one segment. Returns false if the reader ends the scan. */
static bool
scan_segment(int segment, Snapshot visible, const SnapshotValue *after,
			 const SnapshotValue *upto, LogReader reader, void *arg)
{
	SegmentScan scan = {.after = after, .upto = upto, .reader = reader, .arg = arg};
	bool		go_on;

	if (!begin_segment_scan(&scan, segment, visible))
		return true;
	go_on = read_new_transactions(&scan) && read_ended_transactions(&scan);
	end_segment_scan(&scan);
	return go_on;
}

/*
 * Opens a segment. Returns false if nothing was ever written to it. `visible` determines which
 * rows are committed; InvalidSnapshot is a snapshot that is taken now. One from before the table
 * was locked would not do: where ALTER TABLE rewrites a table, all rows become its own, and when
 * we get the lock that it has had, such a snapshot shows none of them.
 */
static bool
begin_segment_scan(SegmentScan *scan, int segment, Snapshot visible)
{
	const SegmentRelations *relations = &relations_enter()->segments[RING_LOG][segment];

	scan->segment = segment;
	scan->table = own_table_open(relations->table, OWN_LOG, AccessShareLock);
	if (RelationGetNumberOfBlocks(scan->table) == 0)
	{
		table_close(scan->table, AccessShareLock);
		return false;
	}
	scan->index = index_open_on(scan->table, LOG_COL_TX, AccessShareLock);
	scan->row = table_slot_create(scan->table, NULL);
	scan->taken = visible ? InvalidSnapshot : RegisterSnapshot(GetLatestSnapshot());
	scan->scan = compat_index_beginscan(scan->table, scan->index, visible ? visible : scan->taken, 2);
	scan->scan->xs_want_itup = true;
	return true;
}

/* Closes what begin_segment_scan() has opened. */
static void
end_segment_scan(SegmentScan *scan)
{
	index_endscan(scan->scan);
	UnregisterSnapshot(scan->taken);
	ExecDropSingleTupleTableSlot(scan->row);
	index_close(scan->index, AccessShareLock);
	table_close(scan->table, AccessShareLock);
}

/* Reads transactions that began after `after`. */
static bool
read_new_transactions(SegmentScan *scan)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_XID8GE,
				FullTransactionIdGetDatum(scan->after->xmax));
	ScanKeyInit(&keys[1], 1, BTLessStrategyNumber, F_XID8LT,
				FullTransactionIdGetDatum(scan->upto->xmax));
	return read_matching(scan, keys, 2);
}

/* Reads transactions that were in progress in `after` and have ended in `upto`. */
static bool
read_ended_transactions(SegmentScan *scan)
{
	for (uint32 i = 0; i < scan->after->nxip; i++)
	{
		FullTransactionId tx = scan->after->xip[i];

		if (snapshot_value_sees(scan->upto, tx) && !read_transaction(scan, tx))
			return false;
	}
	return true;
}

/* Reads the rows of one transaction. Returns false if the reader ends the scan. */
static bool
read_transaction(SegmentScan *scan, FullTransactionId tx)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_XID8EQ, FullTransactionIdGetDatum(tx));
	return read_matching(scan, &key, 1);
}

/*
 * Reads the rows that match. A transaction may have written millions of rows
 * and still be in progress, or have been rolled back: these are not read one by
 * one. All rows of a transaction are adjacent in the index, so the scan
 * continues behind them.
 */
static bool
read_matching(SegmentScan *scan, ScanKey keys, int nkeys)
{
	/*
	 * A scan must have the number of keys that it was begun with, so repeat
	 * the last one.
	 */
	ScanKeyData two[2] = {keys[0], keys[nkeys - 1]};
	int			in_vain = 0;

	index_rescan(scan->scan, two, 2, NULL, 0);
	while (index_getnext_tid(scan->scan, ForwardScanDirection))
	{
		FullTransactionId tx = indexed_tx(scan);

		CHECK_FOR_INTERRUPTS();
		if (is_seen_by_now(scan, tx) && index_fetch_heap(scan->scan, scan->row))
		{
			in_vain = 0;
			if (!scan->reader(scan->row, scan->segment, scan->arg))
				return false;
		}
		else if (++in_vain >= SKIP_AFTER)
		{
			in_vain = 0;
			if (is_seen_by_now(scan, tx) && !was_rolled_back(tx))
				continue;		/* only a savepoint of it was rolled back */
			ScanKeyInit(&two[0], 1, BTGreaterStrategyNumber, F_XID8GT, FullTransactionIdGetDatum(tx));
			index_rescan(scan->scan, two, 2, NULL, 0);
		}
	}
	return true;
}

/* Check whether the later snapshot sees a transaction; true if there is no such snapshot. */
static bool
is_seen_by_now(const SegmentScan *scan, FullTransactionId tx)
{
	return scan->upto == NULL || snapshot_value_sees(scan->upto, tx);
}

/*
 * Check whether a transaction is known to have been rolled back, so that no row of it
 * can be visible. Messages may wait until the commit log does not have it any more.
 */
static bool
was_rolled_back(FullTransactionId tx)
{
	TransactionId xid = XidFromFullTransactionId(tx);
	bool		rolled_back;

	if (TransactionIdIsCurrentTransactionId(xid))
		return false;
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	rolled_back = commit_log_has(tx) && !TransactionIdDidCommit(xid);
	LWLockRelease(XactTruncationLock);
	return rolled_back;
}

/* Returns the transaction of the row that the index names now. */
static FullTransactionId
indexed_tx(const SegmentScan *scan)
{
	bool		isnull;

	return DatumGetFullTransactionId(index_getattr(scan->scan->xs_itup, 1, scan->scan->xs_itupdesc, &isnull));
}

/* Check whether a row is a message for one of these destinations. */
static bool
is_for(TupleTableSlot *row, const DestinationSet *dests)
{
	Message		message;

	if (log_row_is_receipt(row))
		return false;
	log_row_origin(row, &message);
	return destination_set_includes(dests, message.dest);
}

/* A LogReader. */
static bool
match_key(TupleTableSlot *row, int segment, void *arg)
{
	KeySearch  *search = arg;

	search->found = log_row_is_of(row, search->record) && (search->dests == NULL || is_for(row, search->dests));
	return !search->found;
}

/* A LogReader. */
static bool
copy_body(TupleTableSlot *row, int segment, void *arg)
{
	BodySearch *search = arg;
	Message		found;

	if (log_row_id(row) != search->message->id || log_row_is_receipt(row))
		return true;
	log_row_message(row, &found);
	search->message->headers = found.headers ? (Jsonb *) PG_DETOAST_DATUM_COPY(PointerGetDatum(found.headers)) : NULL;
	search->message->body = (bytea *) PG_DETOAST_DATUM_COPY(PointerGetDatum(found.body));
	search->message->deliver_at = found.deliver_at;
	search->found = true;
	return false;
}
