/*
 * log.c
 *		Appends messages to the log and reads those of a window.
 *
 * Sessions append (api.c), the dispatcher reads (bgworker/publish/position.c,
 * bgworker/publish/publisher.c), the views read too. No row is ever updated or
 * deleted.
 *
 * Ids do not commit in order, so nothing may be read by "id greater than the
 * last one": what is new is what one snapshot sees and an earlier one does not.
 *
 * Besides messages the log holds receipts: rows without dest that say that a
 * message has been processed. They are never sent; windows carry them to
 * bgworker/propagate/propagation.c. All who read rows must tell them from messages.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/append.h"
#include "src/table/index.h"
#include "src/table/relations.h"
#include "src/wakeup.h"

/* Columns of log_N. */
enum
{
	COL_ID = 1,
	COL_TX,
	COL_AT,
	COL_DATABASE,
	COL_KEY,
	COL_MESSAGE_ID,
	COL_DEST,
	COL_CAUSE,
	COL_HEADERS,
	COL_BODY,
	COL_DELIVER_AT,
	NCOLUMNS = COL_DELIVER_AT
};

/*
 * After so many rows in a row that are not there for us it is asked whether the
 * rest of their transaction is worth a look.
 */
#define SKIP_AFTER	64

/* So many rows of a segment are looked at for the highest id. */
#define NEWEST_ROWS	1000

/* One segment that is being read. */
typedef struct SegmentScan
{
	int			segment;
	Relation	table;
	Relation	index;
	TupleTableSlot *row;
	IndexScanDesc scan;
	const SnapshotValue *after;
	const SnapshotValue *upto;
	LogReader	reader;
	void	   *arg;
} SegmentScan;

/* What log_carries() looks for. */
typedef struct KeySearch
{
	const pg_uuid_t *key;
	bool		found;
} KeySearch;

/* The message that log_read_body() completes. */
typedef struct BodySearch
{
	Message    *message;
	bool		found;
} BodySearch;

static int64 draw_id(void);
static int64 draw_id_above(DatabaseShared *shared);
static void note_id(DatabaseShared *shared, int64 id);
static bool measure(Oid oid, int64 *size);
static bool scan_segment(int segment, Snapshot visible, const SnapshotValue *after,
					  const SnapshotValue *upto, LogReader reader, void *arg);
static bool begin_segment_scan(SegmentScan *scan, int segment, Snapshot visible);
static void end_segment_scan(SegmentScan *scan);
static bool read_new_transactions(SegmentScan *scan);
static bool read_ended_transactions(SegmentScan *scan);
static bool read_transaction(SegmentScan *scan, FullTransactionId tx);
static bool read_matching(SegmentScan *scan, ScanKey keys, int nkeys);
static bool has_ended(const SegmentScan *scan, FullTransactionId tx);
static bool was_rolled_back(TransactionId tx);
static FullTransactionId indexed_tx(const SegmentScan *scan);
static bool match_key(TupleTableSlot *row, int segment, void *arg);
static bool copy_body(TupleTableSlot *row, int segment, void *arg);

/*
 * Draws the id of the next message: greater than all that were drawn before,
 * even if somebody has set the sequence back, as scripts do after a restore.
 */
int64
log_next_id(void)
{
	DatabaseShared *shared = shared_mine();
	int64		before;
	int64		id;

	if (shared == NULL)
		return draw_id();

	/* What is shared is of this extension, and not of one that was dropped. */
	(void) rings_generation();

	/* What was drawn before we look, we can draw no more. */
	before = pg_atomic_read_u64(&shared->highest_id);
	id = draw_id();
	if (id <= before)
		id = draw_id_above(shared);
	note_id(shared, id);
	return id;
}

/*
 * Notes the highest ids that are in use, for whoever draws the next one; when
 * a dispatcher starts, for then shared memory may be new. In the log the
 * newest transactions of each segment are asked: what is near the end of a window
 * must not sort before what is there.
 */
void
log_note_ids(void)
{
	Rings		rings;
	int64		highest = deferred_highest_id();

	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_LOG].nsegments; n++)
	{
		SegmentScan	scan = {0};
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
	note_id(shared_mine(), highest);
}

static int64
draw_id(void)
{
	return nextval_internal(relations_enter()->message_id_seq, false);
}

/*
 * The sequence was set back: sets it forward again. One process does so at a
 * time, and only while ids that are drawn are too low, so nobody is given one
 * that is set back once more.
 */
static int64
draw_id_above(DatabaseShared *shared)
{
	Oid			sequence = relations_enter()->message_id_seq;
	Oid			user;
	int			context;
	int64		highest;
	int64		id;

	LockRelationOid(sequence, ShareUpdateExclusiveLock);
	while ((id = draw_id()) <= (highest = pg_atomic_read_u64(&shared->highest_id)))
	{
		GetUserIdAndSecContext(&user, &context);
		SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE);
		(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence), Int64GetDatum(highest));
		SetUserIdAndSecContext(user, context);
		ereport(LOG, (errmsg("outbox: the sequence of message ids was set back to %lld, it goes on after %lld",
							 (long long) id, (long long) highest)));
	}
	UnlockRelationOid(sequence, ShareUpdateExclusiveLock);
	return id;
}

static void
note_id(DatabaseShared *shared, int64 id)
{
	uint64		highest = pg_atomic_read_u64(&shared->highest_id);

	while ((int64) highest < id &&
		   !pg_atomic_compare_exchange_u64(&shared->highest_id, &highest, id))
		;
}

/*
 * Appends a message to the current segment, as part of the caller's transaction,
 * and sees to it that the dispatcher is woken when that commits. message->tx
 * is ignored: it is always the caller's top-level transaction.
 *
 * Takes RowExclusiveLock on the segment to the end of the transaction.
 */
void
log_append(const Message *message)
{
	Relation	table = ring_open_current(RING_LOG);
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {0};

	values[COL_ID - 1] = Int64GetDatum(message->id);
	values[COL_TX - 1] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	values[COL_AT - 1] = TimestampTzGetDatum(message->at);
	values[COL_DATABASE - 1] = ObjectIdGetDatum(MyDatabaseId);
	values[COL_KEY - 1] = UUIDPGetDatum(&message->key);
	values[COL_MESSAGE_ID - 1] = PointerGetDatum(message->message_id);
	values[COL_DEST - 1] = PointerGetDatum(message->dest);
	values[COL_CAUSE - 1] = PointerGetDatum(message->cause);
	values[COL_HEADERS - 1] = PointerGetDatum(message->headers);
	values[COL_BODY - 1] = PointerGetDatum(message->body);
	values[COL_DELIVER_AT - 1] = TimestampTzGetDatum(message->deliver_at);
	isnull[COL_KEY - 1] = !message->has_key;
	isnull[COL_DEST - 1] = message->dest == NULL;
	isnull[COL_CAUSE - 1] = message->cause == NULL;
	isnull[COL_HEADERS - 1] = message->headers == NULL;
	isnull[COL_DELIVER_AT - 1] = message->deliver_at == 0;

	append_row(table, COL_TX, NCOLUMNS, values, isnull);
	KILL_POINT("message_written");
	table_close(table, NoLock);
	wakeup_at_commit();
}

/*
 * Appends a receipt: endpoint has processed msgid, and those who are told of it
 * outside of the record ring (a table of the user's, a store) are yet to be.
 * Part of the caller's transaction, as log_append().
 */
void
log_append_receipt(const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	Message		receipt = {
		.id = log_next_id(),
		.at = GetCurrentTimestamp(),
		.has_key = true,
		.key = *key,
		.message_id = cstring_to_text(endpoint),
		.cause = cstring_to_text(msgid),
		.body = (bytea *) cstring_to_text("")
	};

	log_append(&receipt);
}

/*
 * Appends a receipt for a message that had been deferred, and goes its way now or
 * is given up: nobody marks its record before. Which endpoint that is, and whether
 * it has a custom record table, is found out by whoever reads the receipt: until
 * then it may be restored, or get back the table that it had.
 */
void
log_append_receipt_of(const Message *message)
{
	if (message->has_key && message->cause)
		log_append_receipt(&message->key, "", text_to_cstring(message->cause));
}

/*
 * Bytes of all segments on disk, indexes and TOAST included. It waits for nobody:
 * of a segment that is locked, as while it is being emptied, it tells the size that
 * it had when this process looked before.
 */
int64
log_size(void)
{
	static int64 known[MAX_SEGMENTS];
	int64		total = 0;

	for (int n = 0; n < relations_enter()->nsegments[RING_LOG]; n++)
	{
		int64		size = 0;

		if (measure(relations_enter()->segments[RING_LOG][n].table, &size))
			known[n] = size;
		total += known[n];
	}
	return total;
}

/* Adds what a relation takes, with its TOAST table and indexes; false if any of them is locked. */
static bool
measure(Oid oid, int64 *size)
{
	Relation	relation;
	bool		complete = true;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return false;
	relation = try_relation_open(oid, NoLock);
	if (relation)
	{
		*size += (int64) RelationGetNumberOfBlocks(relation) * BLCKSZ;
		if (OidIsValid(relation->rd_rel->reltoastrelid))
			complete = measure(relation->rd_rel->reltoastrelid, size);
		if (relation->rd_rel->relhasindex)
		{
			List	   *indexes = RelationGetIndexList(relation);

			for (int i = 0; i < list_length(indexes) && complete; i++)
				complete = measure(list_nth_oid(indexes, i), size);
			list_free(indexes);
		}
		relation_close(relation, NoLock);
	}
	UnlockRelationOid(oid, AccessShareLock);
	return complete;
}

/* Whether a log of that size is one to which outbox.max_log_size adds nothing. */
bool
log_is_full(int64 size)
{
	return outbox_max_log_size != 0 && size / 1024 >= outbox_max_log_size;
}

/*
 * Raises 53400 if the log is larger than outbox.max_log_size. Looks once a
 * second at the most: the limit is there to save the disk, not to be exact.
 */
void
log_check_size(void)
{
	static TimestampTz looked;
	static int64 size;
	TimestampTz now = clock_now();

	if (outbox_max_log_size == 0)
		return;
	if (now - looked > USECS_PER_SEC || log_is_full(size))
	{
		size = log_size();
		looked = now;
	}
	if (log_is_full(size))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the log of the outbox is full"),
				 errdetail("It has %lld kB; \"outbox.max_log_size\" is %d kB.",
						   (long long) (size / 1024), outbox_max_log_size),
				 errhint("The column \"problem\" of outbox.status says why.")));
}

/*
 * Reads the messages and receipts that `upto` sees and `after` does not, in no particular
 * order. `visible` tells which rows are committed: it must see at least what
 * `upto` sees. Locks are released at once.
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

		/* Nobody has written to a quiet segment since the transaction it names. */
		if (!segment_is_live(segment) ||
			(segment->state == SEGMENT_QUIET && snapshot_value_sees(after, segment->tx)))
			continue;
		if (!scan_segment(n, visible, after, upto, reader, arg))
			return;
	}
}

/*
 * Whether messages of a record are in the log that `after` does not see. Reads
 * all of these: for records that were restored, where nobody knows which
 * transaction restored their messages.
 */
bool
log_carries_since(const SnapshotValue *after, const pg_uuid_t *key)
{
	KeySearch	search = {key, false};

	log_scan(SnapshotSelf, after, snapshot_value_latest(), match_key, &search);
	return search.found;
}

/* Whether the log still has messages of a record that `tx` claimed. */
bool
log_carries(FullTransactionId tx, const pg_uuid_t *key)
{
	KeySearch	search = {key, false};

	log_scan_transaction(tx, match_key, &search);
	return search.found;
}

/*
 * Reads headers, body and time of delivery of a message that `tx` enqueued, into
 * palloc'd memory. False if the log does not have it any more.
 */
bool
log_read_body(FullTransactionId tx, Message *message)
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
		SegmentScan	scan = {.segment = n, .reader = reader, .arg = arg};

		if (segment_is_live(&rings.ring[RING_LOG].segments[n]) && begin_segment_scan(&scan, n, SnapshotSelf))
		{
			go_on = read_transaction(&scan, tx);
			end_segment_scan(&scan);
		}
	}
}

/* Whether a row is a receipt and not a message. */
bool
log_row_is_receipt(TupleTableSlot *row)
{
	return slot_attisnull(row, COL_DEST);
}

/* The id of a row. */
int64
log_row_id(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetInt64(slot_getattr(row, COL_ID, &isnull));
}

/* The top-level transaction that enqueued a row. */
FullTransactionId
log_row_tx(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetFullTransactionId(slot_getattr(row, COL_TX, &isnull));
}

/* The database that a row was enqueued in: this one, or one that it is a copy of. */
Oid
log_row_database(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetObjectId(slot_getattr(row, COL_DATABASE, &isnull));
}

/* When a row was enqueued. */
TimestampTz
log_row_at(TupleTableSlot *row)
{
	bool		isnull;

	return DatumGetTimestampTz(slot_getattr(row, COL_AT, &isnull));
}

/*
 * Reads a row. The body is not fetched if it is stored out of line; all else
 * that is, is fetched into palloc'd memory.
 */
void
log_row_message(TupleTableSlot *row, Message *message)
{
	log_row_envelope(row, message);
	message->headers = slot_attisnull(row, COL_HEADERS) ? NULL : DatumGetJsonbP(row->tts_values[COL_HEADERS - 1]);
	message->body = (bytea *) DatumGetPointer(row->tts_values[COL_BODY - 1]);
}

/* The same without headers and body, which may be damaged: they are NULL. */
void
log_row_envelope(TupleTableSlot *row, Message *message)
{
	slot_getallattrs(row);
#define COLUMN(col) (row->tts_values[(col) - 1])
#define ISNULL(col) (row->tts_isnull[(col) - 1])
	message->id = DatumGetInt64(COLUMN(COL_ID));
	message->tx = DatumGetFullTransactionId(COLUMN(COL_TX));
	message->at = DatumGetTimestampTz(COLUMN(COL_AT));
	message->has_key = !ISNULL(COL_KEY);
	if (message->has_key)
		message->key = *DatumGetUUIDP(COLUMN(COL_KEY));
	message->message_id = DatumGetTextPP(COLUMN(COL_MESSAGE_ID));
	message->dest = ISNULL(COL_DEST) ? NULL : DatumGetTextPP(COLUMN(COL_DEST));
	message->cause = ISNULL(COL_CAUSE) ? NULL : DatumGetTextPP(COLUMN(COL_CAUSE));
	message->headers = NULL;
	message->body = NULL;
	message->deliver_at = ISNULL(COL_DELIVER_AT) ? 0 : DatumGetTimestampTz(COLUMN(COL_DELIVER_AT));
#undef COLUMN
#undef ISNULL
}

static bool
scan_segment(int segment, Snapshot visible, const SnapshotValue *after,
		  const SnapshotValue *upto, LogReader reader, void *arg)
{
	SegmentScan	scan = {.after = after, .upto = upto, .reader = reader, .arg = arg};
	bool		go_on;

	if (!begin_segment_scan(&scan, segment, visible))
		return true;
	go_on = read_new_transactions(&scan) && read_ended_transactions(&scan);
	end_segment_scan(&scan);
	return go_on;
}

/* Opens a segment; false if nothing was ever written to it. */
static bool
begin_segment_scan(SegmentScan *scan, int segment, Snapshot visible)
{
	const SegmentRelations *relations = &relations_enter()->segments[RING_LOG][segment];

	scan->segment = segment;
	scan->table = table_open(relations->table, AccessShareLock);
	if (RelationGetNumberOfBlocks(scan->table) == 0)
	{
		table_close(scan->table, AccessShareLock);
		return false;
	}
	scan->index = index_open_on(scan->table, COL_TX, AccessShareLock);
	scan->row = table_slot_create(scan->table, NULL);
	scan->scan = compat_index_beginscan(scan->table, scan->index, visible, 2);
	scan->scan->xs_want_itup = true;
	return true;
}

static void
end_segment_scan(SegmentScan *scan)
{
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->row);
	index_close(scan->index, AccessShareLock);
	table_close(scan->table, AccessShareLock);
}

/* Transactions that began after `after`. */
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

/* Transactions that were in progress in `after` and have ended in `upto`. */
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

static bool
read_transaction(SegmentScan *scan, FullTransactionId tx)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_XID8EQ, FullTransactionIdGetDatum(tx));
	return read_matching(scan, &key, 1);
}

/*
 * A transaction may have written millions of rows and be still in progress, or
 * have been rolled back: these are not read one by one. All rows of one lie side
 * by side in the index, so the scan goes on behind them.
 */
static bool
read_matching(SegmentScan *scan, ScanKey keys, int nkeys)
{
	/* A scan has the number of keys that it was begun with: repeat the last. */
	ScanKeyData two[2] = {keys[0], keys[nkeys - 1]};
	int			in_vain = 0;

	index_rescan(scan->scan, two, 2, NULL, 0);
	while (index_getnext_tid(scan->scan, ForwardScanDirection))
	{
		FullTransactionId tx = indexed_tx(scan);

		CHECK_FOR_INTERRUPTS();
		if (has_ended(scan, tx) && index_fetch_heap(scan->scan, scan->row))
		{
			in_vain = 0;
			if (!scan->reader(scan->row, scan->segment, scan->arg))
				return false;
		}
		else if (++in_vain >= SKIP_AFTER)
		{
			in_vain = 0;
			if (has_ended(scan, tx) && !was_rolled_back(XidFromFullTransactionId(tx)))
				continue;		/* only a savepoint of it was */
			ScanKeyInit(&two[0], 1, BTGreaterStrategyNumber, F_XID8GT, FullTransactionIdGetDatum(tx));
			index_rescan(scan->scan, two, 2, NULL, 0);
		}
	}
	return true;
}

/* Whether the later snapshot sees a transaction; if there is none, no matter. */
static bool
has_ended(const SegmentScan *scan, FullTransactionId tx)
{
	return scan->upto == NULL || snapshot_value_sees(scan->upto, tx);
}

/* Whether nothing of a transaction that has ended, or is our own, can be there. */
static bool
was_rolled_back(TransactionId tx)
{
	return !TransactionIdDidCommit(tx) && !TransactionIdIsCurrentTransactionId(tx);
}

/* The transaction of the row that the index names now. */
static FullTransactionId
indexed_tx(const SegmentScan *scan)
{
	bool		isnull;

	return DatumGetFullTransactionId(index_getattr(scan->scan->xs_itup, 1, scan->scan->xs_itupdesc, &isnull));
}

static bool
match_key(TupleTableSlot *row, int segment, void *arg)
{
	KeySearch  *search = arg;
	bool		isnull;
	Datum		key = slot_getattr(row, COL_KEY, &isnull);

	search->found = !isnull && !log_row_is_receipt(row) &&
		memcmp(DatumGetUUIDP(key), search->key, sizeof(pg_uuid_t)) == 0;
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
