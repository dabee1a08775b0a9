/*
 * record_ring.c
 *		Looks records up in the ring of record tables, and claims them there.
 *
 * Called by record.c. At most one committed record per endpoint and message
 * id exists within the retention, at any isolation level:
 *
 * A claim takes a momentary lock on the key, looks into every live segment, and
 * only if the key is nowhere inserts it into the current segment; then it lets
 * the lock go at once, for the row in progress now speaks for itself. If the
 * key is in progress elsewhere, the lock is released, that transaction waited
 * for, and the claim begun again. (Insert first and look afterwards would
 * deadlock two racers in different segments.)
 *
 * Looks use a dirty snapshot: it sees what is in progress, works the same at
 * every isolation level, and takes no predicate locks, so transactions about
 * different messages never give each other 40001.
 *
 * What has been compacted is looked for in the history, and filters tell of most
 * segments that they need not be looked into.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/kill_point.h"
#include "src/lock_class.h"
#include "src/record/filter.h"
#include "src/record/forgotten.h"
#include "src/record/history.h"
#include "src/record/record_ring.h"
#include "src/table/append.h"
#include "src/table/index.h"
#include "src/table/relations.h"

/* Columns of record_N. */
enum
{
	COL_KEY = 1,
	COL_TX,
	COL_ENDPOINT,
	COL_MSGID,
	NCOLUMNS = COL_MSGID
};

static RecordLook look_everywhere(const RecordName *name, const Rings *rings);
static RecordLook look_into(int segment, const RecordName *name);
static RecordLook judge(const RecordName *name, RecordLook look, bool *forgotten);
static void claim_anew(const Rings *rings, const RecordName *name);
static void delete_from(int segment, const pg_uuid_t *key);
static RecordLook look_unless_known(const RecordName *name, const Rings *rings, const RecordMemo *memo);
static bool may_hold(const Rings *rings, RingKind kind, int n, const RecordName *name, const Absence *absence);
static bool has_expired(const Segment *segment, int64 retention);
static bool others_are_quiet(const Ring *ring);
static bool is_restored(const RecordName *name);
static void insert(Relation table, const RecordName *name);

/*
 * Looks whether a message has a record, without waiting for anybody. If memo
 * is not NULL it notes what a claim later need not look at again.
 */
RecordLook
record_ring_look(const RecordName *name, RecordMemo *memo)
{
	for (;;)
	{
		Rings		rings;
		RecordLook	look;
		bool		forgotten = false;

		/* What is noted must be noted before the look. */
		rings_read(&rings);
		if (memo)
		{
			memo->generation = rings.generation;
			memo->others_were_quiet = others_are_quiet(&rings.ring[RING_RECORD]);
		}

		look = look_everywhere(name, &rings);
		if (look.fate == RECORD_COMMITTED)
			look = judge(name, look, &forgotten);

		/* The claim must find what does not count: it has to clear that away. */
		if (memo && forgotten)
			memo->others_were_quiet = false;

		/* What was found, too, may have expired since, and with it the tombstone that would have told that it does not count. */
		if (look.fate == RECORD_IN_PROGRESS || rings_generation() == rings.generation)
			return look;
	}
}

/*
 * Claims a message for this transaction.
 *
 * Returns RECORD_ABSENT if it was not claimed before, and now is; otherwise
 * RECORD_COMMITTED and who has it. Waits for transactions that have claimed it
 * and are still in progress. Raises 40001 if this transaction is older than
 * the retention: what it looked at may have been forgotten meanwhile.
 *
 * Takes RowExclusiveLock on the current segment to the end of the transaction,
 * and for a moment the lock on the key.
 */
RecordLook
record_ring_claim(const RecordName *name, const RecordMemo *memo)
{
	for (;;)
	{
		LOCKTAG		tag;
		Rings		rings;
		Relation	table;
		RecordLook	look;
		bool		forgotten = false;
		bool		unchanged;

		record_ring_lock_key(&name->key, &tag);
		KILL_POINT("key_locked");
		table = ring_open_current(RING_RECORD);
		rings_read(&rings);
		look = judge(name, look_unless_known(name, &rings, memo), &forgotten);
		if (forgotten && name->is_restored)
			look.fate = RECORD_COMMITTED;
		unchanged = rings_generation() == rings.generation;

		if (look.fate == RECORD_ABSENT && unchanged)
		{
			record_ring_check_claim(name);
			if (forgotten)
				claim_anew(&rings, name);
			insert(table, name);
			KILL_POINT("record_written");
			table_close(table, NoLock);
			LockRelease(&tag, ExclusiveLock, false);
			KILL_POINT("record_claimed");
			return look;
		}

		table_close(table, NoLock);
		LockRelease(&tag, ExclusiveLock, false);
		if (look.fate == RECORD_COMMITTED && unchanged)
			return look;
		if (look.fate == RECORD_IN_PROGRESS)
			XactLockTableWait(look.xmin, NULL, NULL, XLTW_None);

		/* What begin saw is too old now. */
		memo = NULL;
	}
}

/*
 * Has the ring and the history forget a message, as part of this transaction, and
 * tells what they had of it; false if they do not know it. Waits for transactions
 * that have it in progress.
 */
bool
record_ring_forget(const RecordName *name, RecordLook *found)
{
	for (;;)
	{
		LOCKTAG		tag;
		Rings		rings;
		TransactionId in_progress = InvalidTransactionId;
		bool		unchanged;

		record_ring_lock_key(&name->key, &tag);
		rings_read(&rings);
		*found = look_everywhere(name, &rings);
		unchanged = rings_generation() == rings.generation;
		if (found->fate == RECORD_IN_PROGRESS)
			in_progress = found->xmin;
		else if (found->fate == RECORD_COMMITTED && forgotten_look(&name->key, &in_progress) == FORGOTTEN_NOT)
		{
			forgotten_add(&name->key);
			LockRelease(&tag, ExclusiveLock, false);
			return true;
		}
		LockRelease(&tag, ExclusiveLock, false);
		if (TransactionIdIsValid(in_progress))
			XactLockTableWait(in_progress, NULL, NULL, XLTW_None);
		else if (unchanged)
		{
			*found = (RecordLook) {.fate = RECORD_ABSENT};
			return false;
		}
	}
}

/*
 * Writes a tombstone that a dump has brought, which is about the records of that
 * dump: not if the message has been processed here, or is being. What is compacted,
 * or was restored, is taken for one of the dump. It waits for no transaction:
 * those that restore the records wait for ours.
 */
void
record_ring_restore_forgotten(const pg_uuid_t *key)
{
	RecordName	name = {.key = *key, .retention = PG_INT64_MAX};
	LOCKTAG		tag;
	Rings		rings;
	RecordLook	look;
	TransactionId in_progress;

	record_ring_lock_key(key, &tag);
	do
	{
		rings_read(&rings);
		look = look_everywhere(&name, &rings);
	} while (look.fate == RECORD_ABSENT && rings_generation() != rings.generation);

	/* A claim that is making it new again would otherwise write what does not count. */
	if (!FullTransactionIdIsValid(look.tx) && forgotten_look(key, &in_progress) == FORGOTTEN_NOT)
		forgotten_add(key);
	LockRelease(&tag, ExclusiveLock, false);
}

/* Whether a segment holds a key, forgotten or not, expired or not. */
bool
record_ring_holds(const pg_uuid_t *key)
{
	RecordName	name = {.key = *key, .retention = PG_INT64_MAX};

	for (;;)
	{
		Rings		rings;
		RecordLook	look;

		rings_read(&rings);
		look = look_everywhere(&name, &rings);
		if (look.fate != RECORD_ABSENT)
			return true;
		if (rings_generation() == rings.generation)
			return false;
	}
}

/*
 * A claim whose begin has looked at all segments, and found them free of writers
 * but for the current one, need look into that one only; unless anything has
 * changed since. The current segment is locked by now, so it cannot become quiet
 * and go away.
 */
static RecordLook
look_unless_known(const RecordName *name, const Rings *rings, const RecordMemo *memo)
{
	if (memo && memo->others_were_quiet && memo->generation == rings->generation)
		return look_into(rings->ring[RING_RECORD].current, name);
	return look_everywhere(name, rings);
}

/*
 * Records first, then the history: a segment that was compacted between the two
 * looks is found in one of them, or the generation has changed.
 */
static RecordLook
look_everywhere(const RecordName *name, const Rings *rings)
{
	RecordLook	look = {.fate = RECORD_ABSENT};
	Absence		absence;

	filters_probe(rings, &name->key, &absence);
	for (int n = 0; n < rings->ring[RING_RECORD].nsegments && look.fate == RECORD_ABSENT; n++)
	{
		if (may_hold(rings, RING_RECORD, n, name, &absence))
			look = look_into(n, name);
	}
	for (int n = 0; n < rings->ring[RING_HISTORY].nsegments && look.fate == RECORD_ABSENT; n++)
	{
		if (may_hold(rings, RING_HISTORY, n, name, &absence) && history_contains(n, &name->key))
			look.fate = RECORD_COMMITTED;
	}
	return look;
}

static bool
may_hold(const Rings *rings, RingKind kind, int n, const RecordName *name, const Absence *absence)
{
	const Segment *segment = &rings->ring[kind].segments[n];

	return segment_is_live(segment) && !absence_certain(absence, kind, n) && !has_expired(segment, name->retention);
}

/* Looks into one segment. Locks are released at once. */
static RecordLook
look_into(int segment, const RecordName *name)
{
	const SegmentRelations *relations = &relations_enter()->segments[RING_RECORD][segment];
	Relation	table = table_open(relations->table, AccessShareLock);
	Relation	index = index_open_on(table, COL_KEY, AccessShareLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	RecordLook	look = {.fate = RECORD_ABSENT};
	SnapshotData dirty;
	ScanKeyData key;
	IndexScanDesc scan;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(&name->key));
	scan = compat_index_beginscan(table, index, &dirty, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	if (index_getnext_slot(scan, ForwardScanDirection, row))
	{
		bool		isnull;

		look.tx = DatumGetFullTransactionId(slot_getattr(row, COL_TX, &isnull));
		look.restored = !FullTransactionIdIsValid(look.tx);
		look.fate = TransactionIdIsValid(dirty.xmin) ? RECORD_IN_PROGRESS : RECORD_COMMITTED;
		if (look.fate == RECORD_IN_PROGRESS)
			look.xmin = dirty.xmin;
		else if (look.restored)
			look.xmin = DatumGetTransactionId(slot_getsysattr(row, MinTransactionIdAttributeNumber, &isnull));
		else
			look.xmin = XidFromFullTransactionId(look.tx);

		/* Who deletes it claims it anew: see claim_anew(). */
		if (TransactionIdIsValid(dirty.xmax))
		{
			look.fate = RECORD_IN_PROGRESS;
			look.xmin = dirty.xmax;
		}
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
	return look;
}

/*
 * What a look means, given that its record may have been forgotten. A claim asks
 * also when there is no record: with a tombstone left over the new one would not
 * count.
 */
static RecordLook
judge(const RecordName *name, RecordLook look, bool *forgotten)
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
 * Clears away what was forgotten, for a new record is about to be inserted. The
 * old one is deleted where it can be: it may be in the current segment, and it is not
 * the one that outbox_wait() is to find. Called with the lock on the key.
 */
static void
claim_anew(const Rings *rings, const RecordName *name)
{
	forgotten_clear(&name->key);
	for (int n = 0; n < rings->ring[RING_RECORD].nsegments; n++)
	{
		if (segment_is_live(&rings->ring[RING_RECORD].segments[n]))
			delete_from(n, &name->key);
	}
}

static void
delete_from(int segment, const pg_uuid_t *key)
{
	Relation	table = table_open(relations_enter()->segments[RING_RECORD][segment].table, RowExclusiveLock);
	Relation	index = index_open_on(table, COL_KEY, AccessShareLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	ScanKeyData is_key;
	IndexScanDesc scan;

	ScanKeyInit(&is_key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(key));
	scan = compat_index_beginscan(table, index, SnapshotSelf, 1);
	index_rescan(scan, &is_key, 1, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, row))
		(void) delete_row(table, &row->tts_tid, true);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	table_close(table, NoLock);
}

/* An endpoint with a shorter retention than others has its records forgotten earlier. */
static bool
has_expired(const Segment *segment, int64 retention)
{
	return segment->published_at != 0 &&
		GetCurrentTimestamp() - segment->published_at > retention;
}

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

/* See record_append(). */
static bool
is_restored(const RecordName *name)
{
	return name->retention == PG_INT64_MAX;
}

/* Which transaction has the messages of a restored record nobody knows. */
static void
insert(Relation table, const RecordName *name)
{
	FullTransactionId tx = is_restored(name) ? InvalidFullTransactionId : GetTopFullTransactionId();
	Datum		values[NCOLUMNS];
	bool		isnull[NCOLUMNS] = {0};

	values[COL_KEY - 1] = UUIDPGetDatum(&name->key);
	values[COL_TX - 1] = FullTransactionIdGetDatum(tx);
	isnull[COL_ENDPOINT - 1] = name->endpoint == NULL;
	values[COL_ENDPOINT - 1] = name->endpoint ? CStringGetTextDatum(name->endpoint) : (Datum) 0;
	isnull[COL_MSGID - 1] = name->msgid == NULL;
	values[COL_MSGID - 1] = name->msgid ? CStringGetTextDatum(name->msgid) : (Datum) 0;
	append_row(table, COL_KEY, NCOLUMNS, values, isnull);
}

/* Takes the momentary lock on a key; whoever claims anywhere holds it. */
void
record_ring_lock_key(const pg_uuid_t *key, LOCKTAG *tag)
{
	uint32		halves[2];

	memcpy(halves, key->data, sizeof(halves));
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, halves[0], halves[1], LOCK_CLASS_KEY);
	(void) LockAcquire(tag, ExclusiveLock, false, false);
}

/*
 * Raises 40001 if this transaction is older than the retention: what it looked
 * at may have been forgotten meanwhile. And if the endpoint has got another
 * place for its records since begin, or another store: then others look there. Called with the
 * lock on the key, so whoever gets it next has the new settings or sees us.
 */
void
record_ring_check_claim(const RecordName *name)
{
	/* A record that is being restored goes into the ring in any case. */
	if (is_restored(name))
		return;
	endpoint_check_place(name->endpoint, &name->mapping, name->dedup_store);
	if (GetCurrentTimestamp() - GetCurrentTransactionStartTimestamp() > name->retention)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not claim message \"%s\" of endpoint \"%s\"", name->msgid, name->endpoint),
				 errdetail("The transaction is older than the retention of the endpoint."),
				 errhint("Retry the transaction.")));
}
