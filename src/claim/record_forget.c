/*
 * record_forget.c
 *		Forgets messages: makes their ids count as new again.
 *
 * Called by forget.c, by store_server.c for ids of other databases, and by restore.c
 * for what was forgotten before a dump. What is in the ring or the history stays
 * there, and a tombstone says that it does not count (forgotten.c); a record in a
 * custom record table is deleted, and an id is removed from a store. An id must not be
 * forgotten in one place while it is still to be added to another.
 */
#include "postgres.h"

#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "src/claim/record_forget.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/window_row.h"
#include "src/record/forgotten.h"
#include "src/record/record_lock.h"
#include "src/record/record_ring.h"
#include "src/record/record_table.h"
#include "src/store/store.h"

static bool forget_here(const RecordName *name, RecordLook *in_ring);
static bool forget_given(const RecordName *given);
static void check_is_alone(void);
static void check_is_in_store(const RecordName *name, const RecordLook *found);
static bool all_is_propagated(void);

/*
 * Forgets a message wherever the endpoint's ids are kept, so that the next
 * claim of it succeeds. Returns false if it was not known.
 *
 * Raises 25001 if there is a store and this is a transaction block or a pipeline,
 * because what is removed there cannot be rolled back; and 55000 if the id is still
 * to be added.
 */
bool
record_forget(const RecordName *name)
{
	RecordName	given;
	RecordLook	in_ring;
	bool		is_respelled = record_name_as_given(name, &given);
	bool		known = false;

	if (name->dedup_store)
		check_is_alone();
	if (is_respelled)
		known = forget_given(&given);
	if (forget_here(name, &in_ring))
		known = true;
	if (name->dedup_store == NULL)
		return known;

	/* Last of all, because no error can undo this. */
	if (store_remove(name->dedup_store, &name->key))
		known = true;
	if (is_respelled && store_remove(name->dedup_store, &given.key))
		known = true;
	return known;
}

/*
 * Forgets a message in this database, and sets *in_ring to what the ring had of it. Returns false if
 * it was not known. Raises 55000 if it is still to be added to a store; only then, because a claim may
 * have been waited for.
 */
static bool
forget_here(const RecordName *name, RecordLook *in_ring)
{
	RecordLook	in_table = {.fate = RECORD_ABSENT};
	bool		known = record_forget_in_ring(name, in_ring);

	if (OidIsValid(name->mapping.table) && record_table_forget(name, &in_table))
		known = true;
	if (name->dedup_store)
	{
		check_is_in_store(name, in_ring);
		check_is_in_store(name, &in_table);
	}
	return known;
}

/*
 * The same for a record of before the endpoint got its table, which spells the id in another
 * way. Raises 55000 as long as the receipt of one of its messages may be to come: it would mark
 * the row of the next claim, whose messages may not be sent by then.
 */
static bool
forget_given(const RecordName *given)
{
	RecordLook	in_ring;
	Window		published;
	Window		done;
	bool		is_dead;

	if (!forget_here(given, &in_ring))
		return false;
	if (!window_row_published(&published) || !window_row_propagated(&done, given->dedup_store == NULL))
		elog(ERROR, "no window is left");
	if (done.number > published.number)
		done = published;
	if ((FullTransactionIdIsValid(in_ring.tx) && !snapshot_value_sees(done.snapshot, in_ring.tx)) ||
		(in_ring.restored && log_scan_carries_since(done.snapshot, given)) ||
		deferred_record_waits(&given->key, done.snapshot, NULL, &is_dead))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("messages of \"%s\" are not yet sent", given->msgid),
				 errhint("Try again when outbox_wait() returns true.")));
	return true;
}

/*
 * Makes the ring and the history forget a message, as part of this transaction,
 * and sets *found to what they had of it. Returns false if they do not know it.
 * Waits for transactions that are processing it.
 */
bool
record_forget_in_ring(const RecordName *name, RecordLook *found)
{
	for (;;)
	{
		LOCKTAG		tag;
		Rings		rings;
		TransactionId in_progress = InvalidTransactionId;
		bool		unchanged;

		record_lock_take(&name->key, &tag);
		rings_read(&rings);
		*found = record_ring_look_once(name, &rings);
		unchanged = rings_generation() == rings.generation;
		if (found->fate == RECORD_IN_PROGRESS)
			in_progress = found->xmin;
		else if (found->fate == RECORD_COMMITTED && forgotten_look(&name->key, &in_progress) == FORGOTTEN_NOT)
		{
			forgotten_add(&name->key);
			record_lock_release(&tag);
			return true;
		}
		record_lock_release(&tag);
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
record_forget_restored(const pg_uuid_t *key)
{
	RecordName	name = {.key = *key, .retention = PG_INT64_MAX};
	LOCKTAG		tag;
	Rings		rings;
	RecordLook	look;
	TransactionId in_progress;

	record_lock_take(key, &tag);
	do
	{
		rings_read(&rings);
		look = record_ring_look_once(&name, &rings);
	} while (look.fate == RECORD_ABSENT && rings_generation() != rings.generation);

	/*
	 * A claim that is making it new again would otherwise write what does not
	 * count.
	 */
	if (!FullTransactionIdIsValid(look.tx) && forgotten_look(key, &in_progress) == FORGOTTEN_NOT)
		forgotten_add(key);
	record_lock_release(&tag);
}

/*
 * Raises 25001 where what follows may roll this statement back: in a transaction block, in one of a
 * function that catches errors, and in a pipeline behind other statements. Where it is the first of a
 * pipeline, it is committed before the next one begins, as CREATE DATABASE is.
 */
static void
check_is_alone(void)
{
	if (IsInTransactionBlock(true))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("an id in a deduplication store cannot be forgotten in a transaction block"),
				 errdetail("A store does not take part in transactions, so ROLLBACK would not bring the id back.")));
	MyXactFlags |= XACT_FLAGS_NEEDIMMEDIATECOMMIT;
}

/* Raises an error if a record may still be added to the store. */
static void
check_is_in_store(const RecordName *name, const RecordLook *found)
{
	Window		window;

	if (found->fate != RECORD_COMMITTED || (found->in_table && found->dispatched && all_is_propagated()) ||
		(!found->in_table && !FullTransactionIdIsValid(found->tx)))
		return;

	/*
	 * What is on disk is what the next dispatcher begins with; this one may
	 * have gone back, for a store that lacks ids, and not noted it yet.
	 */
	if (!found->in_table && window_row_propagated_in(SnapshotSelf, &window) &&
		snapshot_value_sees(window.snapshot, found->tx) &&
		window_row_propagated(&window, false) && snapshot_value_sees(window.snapshot, found->tx))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("message \"%s\" is not yet in the deduplication store", name->msgid),
			 errhint("It is added when all that the message caused is in Redis.  Try again then.")));
}

/*
 * Check whether everything in Redis has been propagated to the stores; that a
 * record is marked does not tell.
 */
static bool
all_is_propagated(void)
{
	Window		published;
	Window		propagated;

	return window_row_published(&published) && window_row_propagated(&propagated, false) &&
		propagated.number >= published.number;
}
