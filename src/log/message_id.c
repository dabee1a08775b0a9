/*
 * message_id.c
 *		The numbers of messages, in the order of the calls.
 *
 * Called by everything that appends to the log, and by the dispatcher when it
 * starts. They come from outbox.message_id_seq, which a user may set back, as
 * scripts do after a restore; so the highest one is known in shared memory.
 */
#include "postgres.h"

#include "catalog/pg_authid_d.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/fmgrprotos.h"

#include "src/log/message_id.h"
#include "src/ring/ring.h"
#include "src/shared.h"
#include "src/table/relations.h"

static int64 draw_id(void);
static int64 draw_id_above(DatabaseShared *shared);
static void note_id(DatabaseShared *shared, int64 id);

/*
 * Draws the id of the next message: greater than all that were drawn before,
 * even if the sequence has been set back, as scripts do after a restore.
 */
int64
message_id_next(void)
{
	DatabaseShared *shared = shared_mine();
	int64		before;
	int64		id;

	if (shared == NULL)
		return draw_id();

	/*
	 * Make sure that shared memory is of this extension, and not of one that
	 * was dropped.
	 */
	(void) rings_generation();

	/* An id that was drawn before this look cannot be drawn again. */
	before = pg_atomic_read_u64(&shared->highest_id);
	id = draw_id();
	if (id <= before)
		id = draw_id_above(shared);
	note_id(shared, id);
	return id;
}

/*
 * Notes that ids up to this one are in use. Called when a dispatcher starts,
 * because shared memory may be new then.
 */
void
message_id_note_used(int64 id)
{
	note_id(shared_mine(), id);
}

/* Draws an id without a check of privileges: callers need none on the sequence. */
static int64
draw_id(void)
{
	return nextval_internal(relations_enter()->message_id_seq, false);
}

/*
 * Sets a sequence that was set back forward again, and draws an id. One process
 * does so at a time, and only while the ids that it draws are too low: so it
 * never sets the sequence back itself.
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
		ereport(LOG, (errmsg("outbox: the sequence of message ids was set back to %lld; it continues after %lld",
							 (long long) id, (long long) highest)));
	}
	UnlockRelationOid(sequence, ShareUpdateExclusiveLock);
	return id;
}

/* Raises the highest id that is known; it never goes down. */
static void
note_id(DatabaseShared *shared, int64 id)
{
	uint64		highest = pg_atomic_read_u64(&shared->highest_id);

	while ((int64) highest < id &&
		   !pg_atomic_compare_exchange_u64(&shared->highest_id, &highest, id))
		;
}
