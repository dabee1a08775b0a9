/*
 * record_ring.c
 *		Looks records up in the ring of record tables, and claims them there.
 *
 * Called by claim.c, which describes the order of steps of a claim, and by
 * record_forget.c and expiry.c. A record is looked up in every live segment, and
 * written to the current one.
 *
 * Compacted records are looked up in the history; filters exclude most segments, and
 * know of each row before it is written.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/forgotten.h"
#include "src/record/record_place.h"
#include "src/record/record_ring.h"
#include "src/ring/filter.h"
#include "src/ring/history.h"
#include "src/table/index.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/table/row_write.h"

/* Columns of record_N. */
enum
{
	COL_KEY = 1,
	COL_TX,
	COL_ENDPOINT,
	COL_MSGID,
	NCOLUMNS = COL_MSGID
};

static void ring_claim_open(RecordClaim *claim);
static RecordLook ring_claim_look(RecordClaim *claim);
static bool ring_claim_insert(RecordClaim *claim);
static void ring_claim_close(RecordClaim *claim);
static RecordLook look_everywhere(const RecordName *name, const Rings *rings, const RecordClaim *claim);
static RecordLook look_into_segment(int segment, const RecordName *name, const RecordClaim *claim);
static RecordLook look_by_index(Relation table, Relation index, const RecordName *name);
static RecordLook read_record(TupleTableSlot *row, const SnapshotData *dirty);
static RecordLook judge_look(const RecordName *name, RecordLook look, bool *forgotten);
static void delete_forgotten(const Rings *rings, const RecordName *name);
static void delete_from_segment(int segment, const pg_uuid_t *key);
static RecordLook look_unless_known(const RecordClaim *claim, const Rings *rings);
static uint32 segments_left(const Rings *rings, RingKind kind, const Absence *absence);
static bool has_expired(const Segment *segment, int64 retention);
static bool others_are_quiet(const Ring *ring);
static void append_record(const RecordClaim *claim);

const RecordPlace record_ring = {
	.open = ring_claim_open,
	.look = ring_claim_look,
	.insert = ring_claim_insert,
	.close = ring_claim_close
};

/*
 * Looks up the record of a message, without waiting. If memo is not NULL, notes
 * there what a later claim need not look at again.
 */
RecordLook
record_ring_look(const RecordName *name, RecordMemo *memo)
{
	for (;;)
	{
		const Rings *rings = rings_now();
		int64		generation = rings->generation;
		RecordLook	look;
		bool		forgotten = false;

		/* This must be noted before the lookup. */
		if (memo)
		{
			memo->generation = generation;
			memo->others_were_quiet = others_are_quiet(&rings->ring[RING_RECORD]);
		}

		look = look_everywhere(name, rings, NULL);
		if (look.fate == RECORD_COMMITTED)
			look = judge_look(name, look, &forgotten);

		/* The claim must find what does not count: it has to clear that away. */
		if (memo && forgotten)
			memo->others_were_quiet = false;

		/*
		 * What was found, too, may have expired since, and with it the
		 * tombstone that would have told that it does not count.
		 */
		if (look.fate == RECORD_IN_PROGRESS || rings_generation() == generation)
			return look;
	}
}

/*
 * Looks up a record once, whether it has been forgotten or not, in the segments that
 * `rings` has; for record_forget.c, which holds the lock on the key.
 */
RecordLook
record_ring_look_once(const RecordName *name, const Rings *rings)
{
	return look_everywhere(name, rings, NULL);
}

/* Check whether a segment holds a key, forgotten or not, expired or not. */
bool
record_ring_holds(const pg_uuid_t *key)
{
	RecordName	name = {.key = *key, .retention = PG_INT64_MAX};

	for (;;)
	{
		Rings		rings;
		RecordLook	look;

		rings_read(&rings);
		look = look_everywhere(&name, &rings, NULL);
		if (look.fate != RECORD_ABSENT)
			return true;
		if (rings_generation() == rings.generation)
			return false;
	}
}

/* The current segment is opened with the key locked: it must be the current one when the row is written. */
static void
ring_claim_open(RecordClaim *claim)
{
}

/* Takes RowExclusiveLock on the current segment and its index to the end of the transaction, before it looks. */
static RecordLook
ring_claim_look(RecordClaim *claim)
{
	const Rings *rings;
	RecordLook	look;

	claim->table = ring_open_current(RING_RECORD, &claim->segment);
	claim->index = index_open_to_write(claim->table, COL_KEY);
	rings = rings_now();
	claim->generation = rings->generation;
	claim->forgotten = false;
	look = judge_look(claim->name, look_unless_known(claim, rings), &claim->forgotten);
	if (claim->forgotten && claim->name->is_restored)
		look.fate = RECORD_COMMITTED;

	/* What was found, too, may have expired since; see record_ring_look(). */
	if (look.fate != RECORD_IN_PROGRESS && rings_generation() != claim->generation)
		look.fate = RECORD_UNKNOWN;
	return look;
}

/*
 * Writes the record. This is never refused: only we write to a ring, and the key is
 * locked. The filter knows the key first: so it denies no row that is there.
 */
static bool
ring_claim_insert(RecordClaim *claim)
{
	if (claim->forgotten)
		delete_forgotten(rings_now(), claim->name);
	filter_note(RING_RECORD, claim->segment, &claim->name->key);
	KILL_POINT("record_key_noted");
	append_record(claim);
	return true;
}

/* Keeps the lock on the segment until the end of the transaction. */
static void
ring_claim_close(RecordClaim *claim)
{
	index_close(claim->index, NoLock);
	table_close(claim->table, NoLock);
}

/*
 * A claim whose begin has looked at all segments, and found them free of writers
 * but for the current one, need look into that one only; unless anything has
 * changed since. The current segment is locked by now, so it cannot become quiet
 * and go away. What its filter says counts, because the key is locked.
 */
static RecordLook
look_unless_known(const RecordClaim *claim, const Rings *rings)
{
	const RecordMemo *memo = claim->memo;
	int			current = rings->ring[RING_RECORD].current;

	if (memo == NULL || !memo->others_were_quiet || memo->generation != claim->generation)
		return look_everywhere(claim->name, rings, claim);
	if (filter_excludes(rings, RING_RECORD, current, &claim->name->key))
		return (RecordLook) {.fate = RECORD_ABSENT};
	return look_into_segment(current, claim->name, claim);
}

/*
 * Records first, then the history: a segment that was compacted between the two
 * looks is found in one of them, or the generation has changed. `claim` is NULL
 * for a look without one.
 */
static RecordLook
look_everywhere(const RecordName *name, const Rings *rings, const RecordClaim *claim)
{
	RecordLook	look = {.fate = RECORD_ABSENT};
	Absence		absence;

	filters_probe(rings, &name->key, &absence);
	for (uint32 left = segments_left(rings, RING_RECORD, &absence); left != 0 && look.fate == RECORD_ABSENT; left &= left - 1)
	{
		int			n = pg_rightmost_one_pos32(left);

		if (!has_expired(&rings->ring[RING_RECORD].segments[n], name->retention))
			look = look_into_segment(n, name, claim);
	}
	for (uint32 left = segments_left(rings, RING_HISTORY, &absence); left != 0 && look.fate == RECORD_ABSENT; left &= left - 1)
	{
		int			n = pg_rightmost_one_pos32(left);

		if (!has_expired(&rings->ring[RING_HISTORY].segments[n], name->retention) && history_contains(n, &name->key))
			look.fate = RECORD_COMMITTED;
	}
	return look;
}

/* Returns a bit for each segment that the filters leave to be looked into. */
static uint32
segments_left(const Rings *rings, RingKind kind, const Absence *absence)
{
	return rings->ring[kind].live & ~absence->segments[kind];
}

/*
 * Looks up a record in one segment. Locks are released at once, but the segment
 * that a claim writes to is open already.
 */
static RecordLook
look_into_segment(int segment, const RecordName *name, const RecordClaim *claim)
{
	Oid			oid = relations_enter()->segments[RING_RECORD][segment].table;
	Relation	table;
	Relation	index;
	RecordLook	look;

	if (claim && RelationGetRelid(claim->table) == oid)
		return look_by_index(claim->table, claim->index, name);
	table = own_table_open(oid, OWN_RECORD, AccessShareLock);
	index = index_open_on(table, COL_KEY, AccessShareLock);
	look = look_by_index(table, index, name);
	index_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
	return look;
}

/* Looks up a record in an open segment. Nearly all are new, so a row is made room for only when one is found. */
static RecordLook
look_by_index(Relation table, Relation index, const RecordName *name)
{
	RecordLook	look = {.fate = RECORD_ABSENT};
	TupleTableSlot *row = NULL;
	SnapshotData dirty;
	ScanKeyData key;
	IndexScanDesc scan;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(&name->key));
	scan = compat_index_beginscan(table, index, &dirty, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	while (look.fate == RECORD_ABSENT && index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		if (row == NULL)
			row = table_slot_create(table, NULL);
		if (index_fetch_heap(scan, row))
			look = read_record(row, &dirty);
	}
	index_endscan(scan);
	if (row)
		ExecDropSingleTupleTableSlot(row);
	return look;
}

/* Returns what a row that the dirty snapshot shows says about its message. */
static RecordLook
read_record(TupleTableSlot *row, const SnapshotData *dirty)
{
	RecordLook	look = {.fate = TransactionIdIsValid(dirty->xmin) ? RECORD_IN_PROGRESS : RECORD_COMMITTED};
	bool		isnull;

	look.tx = DatumGetFullTransactionId(slot_getattr(row, COL_TX, &isnull));
	look.restored = !FullTransactionIdIsValid(look.tx);
	if (look.fate == RECORD_IN_PROGRESS)
		look.xmin = dirty->xmin;
	else if (look.restored)
		look.xmin = row_inserter(row);
	else
		look.xmin = XidFromFullTransactionId(look.tx);

	/*
	 * The transaction that deletes it claims the id again: see
	 * delete_forgotten().
	 */
	if (TransactionIdIsValid(dirty->xmax))
	{
		look.fate = RECORD_IN_PROGRESS;
		look.xmin = dirty->xmax;
	}
	return look;
}

/*
 * What a look means, given that its record may have been forgotten. A claim asks
 * even when there is no record: with a tombstone left over the new one would not
 * count.
 */
static RecordLook
judge_look(const RecordName *name, RecordLook look, bool *forgotten)
{
	TransactionId in_progress;

	if (look.fate == RECORD_IN_PROGRESS)
		return look;
	switch (forgotten_look(&name->key, &in_progress))
	{
		case FORGOTTEN_NOT:
			break;
		case FORGOTTEN_PERHAPS:
			if (look.fate == RECORD_ABSENT)
				look = (RecordLook) {.fate = RECORD_IN_PROGRESS, .xmin = in_progress};
			break;
		case FORGOTTEN_YES:
			look = (RecordLook) {.fate = RECORD_ABSENT};
			*forgotten = true;
			break;
		case FORGOTTEN_NO_LONGER:
			look = (RecordLook) {.fate = RECORD_IN_PROGRESS, .xmin = in_progress};
			break;
	}
	return look;
}

/*
 * Deletes the tombstones of a key, because a new record is about to be inserted. The
 * old one is deleted where it can be: it may be in the current segment, and it is not
 * the one that outbox_wait() is to find. Called with the lock on the key.
 */
static void
delete_forgotten(const Rings *rings, const RecordName *name)
{
	forgotten_clear(&name->key);
	for (int n = 0; n < rings->ring[RING_RECORD].nsegments; n++)
	{
		if (segment_is_live(&rings->ring[RING_RECORD].segments[n]))
			delete_from_segment(n, &name->key);
	}
}

/* Deletes the rows of a key that are seen now, waiting for transactions that are deleting them. */
static void
delete_from_segment(int segment, const pg_uuid_t *key)
{
	Relation	table = own_table_open(relations_enter()->segments[RING_RECORD][segment].table, OWN_RECORD, RowExclusiveLock);
	Relation	index = index_open_on(table, COL_KEY, AccessShareLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	ScanKeyData is_key;
	IndexScanDesc scan;

	ScanKeyInit(&is_key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(key));
	scan = compat_index_beginscan(table, index, SnapshotSelf, 1);
	index_rescan(scan, &is_key, 1, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, row))
		(void) row_delete(table, &row->tts_tid, true);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	table_close(table, NoLock);
}

/* Check whether the records in a segment are older than a retention, which may be shorter than that of others. */
static bool
has_expired(const Segment *segment, int64 retention)
{
	return segment->published_at != 0 &&
		GetCurrentTimestamp() - segment->published_at > retention;
}

/* Check whether only the current segment can still be written to. */
static bool
others_are_quiet(const Ring *ring)
{
	for (int n = 0; n < ring->nsegments; n++)
	{
		if (ring->segments[n].state == SEGMENT_SEALED)
			return false;
	}
	return true;
}

/*
 * Returns the endpoint of a record; NULL = not known, nor is msgid. The default
 * endpoint is not written to each row.
 */
char *
record_ring_endpoint(TupleTableSlot *row)
{
	bool		isnull;
	Datum		endpoint = slot_getattr(row, COL_ENDPOINT, &isnull);

	if (!isnull)
		return TextDatumGetCString(endpoint);
	return slot_attisnull(row, COL_MSGID) ? NULL : pstrdup(DEFAULT_ENDPOINT);
}

/* Writes a record. The transaction that has the messages of a restored one is not known. */
static void
append_record(const RecordClaim *claim)
{
	const RecordName *name = claim->name;
	FullTransactionId tx = name->is_appended ? InvalidFullTransactionId : GetTopFullTransactionId();
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {0};

	values[COL_KEY - 1] = UUIDPGetDatum(&name->key);
	values[COL_TX - 1] = FullTransactionIdGetDatum(tx);
	isnull[COL_ENDPOINT - 1] = name->endpoint == NULL || (name->msgid && strcmp(name->endpoint, DEFAULT_ENDPOINT) == 0);
	values[COL_ENDPOINT - 1] = isnull[COL_ENDPOINT - 1] ? (Datum) 0 : CStringGetTextDatum(name->endpoint);
	isnull[COL_MSGID - 1] = name->msgid == NULL;
	values[COL_MSGID - 1] = name->msgid ? CStringGetTextDatum(name->msgid) : (Datum) 0;
	row_append_with(claim->table, claim->index, COL_KEY, NCOLUMNS, values, isnull);
}
