/*
 * claim.c
 *		Finds out whether a message has been processed, and claims it.
 *
 * Called by open_message.c, wait.c, restore.c and store_server.c. It knows where an
 * endpoint keeps its records: in the ring (record_ring.c) or in a custom record
 * table (record_table.c). At most one committed record per endpoint
 * and message id exists within the retention, at any isolation level.
 *
 * A claim takes these steps, wherever the record goes:
 *
 *	 open	A custom record table is locked to the end of the transaction, and
 *			checked if it has changed: so no transaction waits for the key because
 *			a table is being altered. The ring has nothing to do here.
 *	 key	The momentary lock on the key. If the table spells the id in another way,
 *			first that on the key of the id as it was given: a session that does not
 *			know of the table yet takes that one alone, and writes into the ring.
 *	 look	The ring locks its current segment to the end of the transaction,
 *			notes the generation, and then looks: into the segments and the
 *			history, most of which it need not visit thanks to filters and to what
 *			begin has seen (RecordMemo), and at the tombstones. It looks again if
 *			the generation has changed. A custom record table looks into itself,
 *			and then, as begin does, into the ring, where the endpoint may have had
 *			its records before.
 *	 check	Only if the key is nowhere. The endpoint must still keep its records
 *			here, and the transaction be younger than the retention; else 40001.
 *	 insert The ring deletes what was forgotten, and writes a row. A custom record
 *			table gets an INSERT with the privileges of its owner, in a subtransaction, which
 *			meets a duplicate if a statement of the owner was faster.
 *	 unlock The row in progress speaks for itself from now on.
 *	 wait	If the key is in progress elsewhere, for the end of that transaction,
 *			with no momentary lock held; and then all begins again, without what
 *			begin has seen. (Inserting first and looking afterwards would
 *			deadlock two racers in different segments.)
 *
 * Looks use a dirty snapshot: it sees what is in progress, works the same at
 * every isolation level, and takes no predicate locks, so transactions about
 * different messages never give each other 40001.
 *
 * An endpoint may have a store outside that remembers its ids when their records
 * are gone (store.c). Records are looked at first and the store second, because an
 * id is added to the store before its record goes. A claim that comes long after
 * its look asks the store once more, when its own record is already there.
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/claim/claim.h"
#include "src/claim/durable_commit.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/lock_class.h"
#include "src/record/endpoint.h"
#include "src/record/record_lock.h"
#include "src/record/record_place.h"
#include "src/record/record_ring.h"
#include "src/record/record_table.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/store/store.h"

static RecordLook look_in_places(const RecordName *name, RecordMemo *memo);
static RecordLook look_in_ring(const RecordName *name, RecordMemo *memo);
static const RecordPlace *place_of(const RecordName *name);
static RecordLook claim_in(const RecordPlace *place, const RecordName *name, const RecordMemo *memo);
static RecordLook look_to_claim(const RecordPlace *place, RecordClaim *claim);
static bool insert_unless_refused(const RecordPlace *place, RecordClaim *claim);
static void check_may_claim(const RecordClaim *claim);
static bool is_late(const RecordName *name, const RecordMemo *memo);
static bool has_expired_since(TransactionId xmax);
static TransactionId xmax_now(void);
static bool is_in_store(const RecordName *name);
static void take_turn_to_restore(void);
static void append_unclaimed(const pg_uuid_t *key, const char *endpoint, const char *msgid, bool is_restored);

/*
 * Looks up the record of a message, without waiting for another transaction. If
 * memo is not NULL, notes there what a later claim need not look at again.
 */
RecordLook
claim_look_up(const RecordName *name, RecordMemo *memo)
{
	RecordLook	found;

	if (memo)
		memo->xmax = xmax_now();
	if (memo && name->dedup_store)
	{
		memo->looked_at = GetCurrentTimestamp();
		memo->looked_at_clock = clock_now();
	}
	found = look_in_places(name, memo);
	if (found.fate != RECORD_COMMITTED && is_in_store(name))
		return (RecordLook) {.fate = RECORD_COMMITTED};
	return found;
}

/*
 * Claims a message for this transaction; memo is what claim_look_up() noted, or
 * NULL.
 *
 * Returns RECORD_ABSENT if it was not claimed before, and now is; otherwise
 * RECORD_COMMITTED and who has it. Waits for transactions that have claimed it
 * and are still in progress. Raises 40001 if this transaction is older than
 * the retention.
 */
RecordLook
claim_message(const RecordName *name, const RecordMemo *memo)
{
	RecordMemo	own;
	RecordLook	found;

	if (name->dedup_store == NULL)
		return claim_in(place_of(name), name, memo);
	if (memo == NULL)
	{
		found = claim_look_up(name, &own);
		if (found.fate == RECORD_COMMITTED)
			return found;
		memo = &own;
	}
	found = claim_in(place_of(name), name, memo);
	if (found.fate == RECORD_ABSENT && is_late(name, memo) && is_in_store(name))
		return (RecordLook) {.fate = RECORD_COMMITTED};
	return found;
}

/* Looks up a record where the endpoint keeps its records. */
static RecordLook
look_in_places(const RecordName *name, RecordMemo *memo)
{
	if (OidIsValid(name->mapping.table))
	{
		RecordLook	found = record_table_look(name);

		if (found.fate != RECORD_ABSENT)
			return found;
	}

	return look_in_ring(name, memo);
}

/* Looks up a record in the ring, where the endpoint may have had it before it got a table. */
static RecordLook
look_in_ring(const RecordName *name, RecordMemo *memo)
{
	RecordName	given;
	RecordLook	found = record_ring_look(name, memo);

	if (found.fate == RECORD_ABSENT && record_name_as_given(name, &given))
		found = record_ring_look(&given, NULL);
	return found;
}

/* Returns where the endpoint keeps its records. */
static const RecordPlace *
place_of(const RecordName *name)
{
	return OidIsValid(name->mapping.table) ? &record_table : &record_ring;
}

/* The claim: see the head of this file for what may not change its place here. */
static RecordLook
claim_in(const RecordPlace *place, const RecordName *name, const RecordMemo *memo)
{
	RecordClaim claim = {.name = name, .memo = memo, .xmax = memo ? memo->xmax : xmax_now()};
	RecordName	given;
	bool		is_respelled = record_name_as_given(name, &given);

	for (;;)
	{
		LOCKTAG		tag;
		LOCKTAG		given_tag;
		RecordLook	look;
		bool		claimed;

		place->open(&claim);
		if (is_respelled)
			record_lock_take(&given.key, &given_tag);
		record_lock_take(&name->key, &tag);
		KILL_POINT("key_locked");
		look = look_to_claim(place, &claim);
		claimed = look.fate == RECORD_ABSENT && insert_unless_refused(place, &claim);
		place->close(&claim);
		record_lock_release(&tag);
		if (is_respelled)
			record_lock_release(&given_tag);
		if (claimed)
			KILL_POINT("record_claimed");

		if (claimed || look.fate == RECORD_COMMITTED)
			return look;
		if (look.fate == RECORD_IN_PROGRESS)
			XactLockTableWait(look.xmin, NULL, NULL, XLTW_None);

		/* What begin has seen is too old now. */
		claim.memo = NULL;
	}
}

/* Looks up a record where it is to be written, and where it may be otherwise. */
static RecordLook
look_to_claim(const RecordPlace *place, RecordClaim *claim)
{
	RecordLook	look = place->look(claim);

	if (look.fate == RECORD_ABSENT && place != &record_ring)
		look = look_in_ring(claim->name, NULL);
	return look;
}

/*
 * Writes a record that exists nowhere. Returns false if a statement of another
 * transaction was faster.
 */
static bool
insert_unless_refused(const RecordPlace *place, RecordClaim *claim)
{
	/*
	 * The last insert was refused although the key is nowhere, so its error
	 * is not about a duplicate.
	 */
	if (claim->refusal)
		ReThrowError(claim->refusal);
	check_may_claim(claim);
	if (!place->insert(claim))
		return false;
	KILL_POINT("record_written");
	return true;
}

/*
 * Raises 40001 if this transaction is older than the retention, because records may have
 * expired since it looked: either the retention at begin, which this session looks by, or the
 * present one, or the one that our processes go by, because a session does not hear of what
 * ALTER DATABASE sets: for the ring only where records have expired. Where there is a store, its
 * ids may have expired, too; as long as it has them, is_late() has it asked. Also raises 40001 if the
 * endpoint has got another place for its records, or another store, since begin, because other
 * transactions look there. Called with the lock on the key, so the next process that gets it has
 * the new settings or sees our record.
 */
static void
check_may_claim(const RecordClaim *claim)
{
	const RecordName *name = claim->name;
	Endpoint	now;
	int64		memory;

	/* A record that is being restored is always written to the ring. */
	if (name->is_appended)
		return;
	endpoint_check_place(name->endpoint, &name->mapping, name->dedup_store);
	(void) endpoint_find(name->endpoint, &now);
	memory = Min(name->retention, endpoint_memory(&now));
	if (OidIsValid(name->mapping.table) || name->dedup_store)
		memory = Min(memory, now.kept);
	if (GetCurrentTimestamp() - GetCurrentTransactionStartTimestamp() > memory ||
		(name->dedup_store == NULL && has_expired_since(claim->xmax)))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not claim message \"%s\" of endpoint \"%s\"", name->msgid, name->endpoint),
				 errdetail("The transaction is older than the retention of the endpoint."),
				 errhint("Retry the transaction.")));
}

/*
 * Check whether a record may have been removed since the lookup that the memo
 * is from: that happens at the earliest outbox.replay_window after the id was
 * added to the store. Half of that time is a margin, because it is measured by
 * the wall clock, which may be set. The dispatcher may have another value of that
 * setting than this session: then a custom record table is cleaned up by that one, and of
 * the ring it is known what has expired.
 */
static bool
is_late(const RecordName *name, const RecordMemo *memo)
{
	DatabaseShared *shared = OidIsValid(name->mapping.table) ? shared_mine() : NULL;
	int			window = Min(outbox_replay_window, shared ? (int) pg_atomic_read_u32(&shared->replay_window) : INT_MAX);
	int64		limit = window * USECS_PER_SEC / 2;

	return GetCurrentTimestamp() - memo->looked_at >= limit || clock_now() - memo->looked_at_clock >= limit ||
		has_expired_since(memo->xmax);
}

/*
 * Check whether records may have expired that were committed when those of transactions from
 * `xmax` on, which has begun within two billion transactions, could not be seen.
 */
static bool
has_expired_since(TransactionId xmax)
{
	DatabaseShared *shared = shared_mine();
	FullTransactionId mine = GetTopFullTransactionId();
	uint64		since = U64FromFullTransactionId(mine) + (int32) (xmax - XidFromFullTransactionId(mine));

	return shared && pg_atomic_read_u64(&shared->expired_tx) >= since;
}

/* Returns the first transaction of which our snapshot can show nothing: one that has not yet begun, or not ended. */
static TransactionId
xmax_now(void)
{
	return ActiveSnapshotSet() ? GetActiveSnapshot()->xmax : GetTransactionSnapshot()->xmax;
}

/* Check whether the store of the endpoint, if it has one, has an id. Raises an error if that cannot be found out. */
static bool
is_in_store(const RecordName *name)
{
	RecordName	given;

	return name->dedup_store && (store_contains(name->dedup_store, &name->key) ||
								 (record_name_as_given(name, &given) && store_contains(name->dedup_store, &given.key)));
}

/*
 * Writes a record of which possibly only the key is known (endpoint and msgid are
 * then NULL), unless it exists already; like a claim, but regardless of the age
 * of the transaction.
 */
void
claim_append(const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	append_unclaimed(key, endpoint, msgid, false);
}

/* The same for a record from a dump, which stays forgotten if its id was forgotten. */
void
claim_restore(const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	take_turn_to_restore();
	append_unclaimed(key, endpoint, msgid, true);
}

/*
 * Waits until no other transaction is restoring records. A dump has a key twice if it was taken
 * while segments were merged, or before their sources were emptied, and in each table keys are
 * in another order: two sessions of pg_restore would wait for each other's transactions.
 *
 * Takes ExclusiveLock to the end of the transaction.
 */
static void
take_turn_to_restore(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, LOCK_CLASS_RESTORE);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/*
 * Writes a record unless it exists already; in that case waits until the existing one is safe. One
 * whose retention is over, and which is gone with the next cleanup, does not count.
 */
static void
append_unclaimed(const pg_uuid_t *key, const char *endpoint, const char *msgid, bool is_restored)
{
	RecordName	name = {
		.endpoint = (char *) endpoint,
		.msgid = (char *) msgid,
		.key = *key,
		.retention = endpoint_longest_retention(),
		.is_appended = true,
		.is_restored = is_restored
	};
	RecordLook	look;

	look = claim_in(&record_ring, &name, NULL);
	durable_commit_wait(&look);
}
