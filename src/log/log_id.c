/*
 * log_id.c
 *		The numbers of messages, in the order of the calls.
 *
 * Called by everything that appends to the log, and by the dispatcher when it
 * starts. Ids come from outbox.log_id_seq, in blocks: a block is reserved by
 * setting the sequence forward, and sessions draw from it in shared memory, each
 * the id after the one that was drawn last by any of them. So ids are in the
 * order of the calls, whichever session has reserved the block.
 * (What consumers see is another id: src/api/message_id.c.)
 *
 *	 reserve	the sequence is set to the end of the block (WAL), under a lock on
 *				it; then the block is published. What commits with an id of it has
 *				its commit record behind that WAL record: if the one survives a
 *				crash or reaches a standby, so does the other.
 *	 draw		adds 1 to next_id, unless that is beyond last_id
 *
 * A transaction that has created the extension draws from the sequence itself: what is in
 * shared memory may belong to another extension, which is there again after a rollback.
 *
 * What is left of a block when the server goes down is never drawn. The sequence
 * may be set back, as scripts do after a restore: next_id never goes back, and a
 * block is above both. nextval() is not used: it changes what lastval() returns
 * to the application.
 */
#include "postgres.h"

#include "catalog/pg_authid_d.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/fmgrprotos.h"

#include "src/kill_point.h"
#include "src/log/log_id.h"
#include "src/ring/ring.h"
#include "src/shared.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

#define BLOCK	64

static bool draw_id(DatabaseShared *shared, int64 *id);
static void reserve_block(DatabaseShared *shared);
static int64 last_of_sequence(void);
static int64 advance_sequence(int64 last, int n);
static void raise_next_id(DatabaseShared *shared, int64 next);

/*
 * Draws the id of the next message: greater than all that were drawn before,
 * even if the sequence has been set back.
 */
int64
log_id_next(void)
{
	DatabaseShared *shared = shared_mine();
	int64		id;

	/*
	 * Make sure that shared memory is of this extension, and not of one that
	 * was dropped, or that may be there again.
	 */
	if (shared == NULL || !rings_are_shared())
	{
		LockRelationOid(relations_enter()->log_id_seq, ShareUpdateExclusiveLock);
		id = advance_sequence(last_of_sequence(), 1);
		UnlockRelationOid(relations_enter()->log_id_seq, ShareUpdateExclusiveLock);
		return id;
	}
	while (!draw_id(shared, &id))
		reserve_block(shared);
	return id;
}

/*
 * Notes that ids up to this one are in use. Called when a dispatcher starts,
 * because shared memory may be new then.
 */
void
log_id_note_used(int64 id)
{
	raise_next_id(shared_mine(), id + 1);
}

/* Returns the id drawn last, or a little more. The caller needs no privileges on the sequence. */
int64
log_id_last(void)
{
	DatabaseShared *shared = shared_mine();

	if (shared && pg_atomic_read_u64(&shared->last_id) > 0)
		return pg_atomic_read_u64(&shared->next_id) - 1;
	return last_of_sequence();
}

/* Draws an id from the block in shared memory. Returns false if it is used up. */
static bool
draw_id(DatabaseShared *shared, int64 *id)
{
	uint64		next = pg_atomic_read_u64(&shared->next_id);

	do
	{
		/* The end of a later block may be read, but then next_id has changed. */
		pg_read_barrier();
		if (next > pg_atomic_read_u64(&shared->last_id))
			return false;
	} while (!pg_atomic_compare_exchange_u64(&shared->next_id, &next, next + 1));
	*id = next;
	return true;
}

/*
 * Reserves the next block, unless another session has just done so. Takes
 * ShareUpdateExclusiveLock on the sequence for that moment.
 */
static void
reserve_block(DatabaseShared *shared)
{
	Oid			sequence = relations_enter()->log_id_seq;

	LockRelationOid(sequence, ShareUpdateExclusiveLock);
	if (pg_atomic_read_u64(&shared->next_id) > pg_atomic_read_u64(&shared->last_id))
	{
		int64		last = last_of_sequence();
		int64		drawn = pg_atomic_read_u64(&shared->next_id) - 1;

		if (last < drawn)
			ereport(LOG, (errmsg("outbox: sequence \"outbox.log_id_seq\" was set back to %lld; it continues after %lld",
								 (long long) last, (long long) drawn)));
		last = advance_sequence(Max(last, drawn), BLOCK);
		KILL_POINT("ids_reserved");

		/* In this order: see draw_id(). */
		raise_next_id(shared, last - BLOCK + 1);
		pg_write_barrier();
		pg_atomic_write_u64(&shared->last_id, last);
	}
	UnlockRelationOid(sequence, ShareUpdateExclusiveLock);
}

/* Returns the last value of the sequence; 0 if it has not been used. */
static int64
last_of_sequence(void)
{
	RowScan		scan;
	int64		last = 0;
	bool		isnull;

	row_scan_begin(&scan, relations_enter()->log_id_seq, OWN_LOG_ID_SEQ);
	if (row_scan_next(&scan))
	{
		last = DatumGetInt64(slot_getattr(scan.row, SEQ_COL_LASTVAL, &isnull));
		if (!DatumGetBool(slot_getattr(scan.row, SEQ_COL_CALLED, &isnull)))
			last--;
	}
	row_scan_end(&scan);
	return last;
}

/*
 * Sets the sequence forward by n without a check of privileges: callers need none on it.
 * Returns its new last value.
 */
static int64
advance_sequence(int64 last, int n)
{
	Oid			user;
	int			context;

	if (last > PG_INT64_MAX - n)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("sequence \"outbox.log_id_seq\" has reached its maximum value"),
				 errdetail("It was set to that value, or close to it."),
				 errhint("Execute SELECT setval('outbox.log_id_seq', 1); ids continue after those that are in use.")));
	last += n;
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE);
	(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(relations_enter()->log_id_seq), Int64GetDatum(last));
	SetUserIdAndSecContext(user, context);
	return last;
}

/* Raises the id that is drawn next; it never goes down. */
static void
raise_next_id(DatabaseShared *shared, int64 next)
{
	uint64		now = pg_atomic_read_u64(&shared->next_id);

	while ((int64) now < next && !pg_atomic_compare_exchange_u64(&shared->next_id, &now, next))
		;
}
