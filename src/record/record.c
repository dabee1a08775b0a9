/*
 * record.c
 *		Records: has a message been processed, and the claim that it was.
 *
 * Called by session.c, wait.c and restore.c. It names records and knows where
 * an endpoint keeps them; how they are looked up and claimed there is the
 * business of record_ring.c and record_table.c. An endpoint may have a store outside that remembers
 * its ids when their records are gone (store.c). Records are looked at first and
 * the store second, for an id goes to the store before its record goes; and
 * whoever claims long after its look looks into the store once more, when its
 * own record is there already. At most one committed record per endpoint and
 * message id exists within the retention, at any isolation level.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/log/window.h"
#include "src/record/durable.h"
#include "src/record/record.h"
#include "src/record/record_ring.h"
#include "src/record/record_table.h"
#include "src/settings.h"
#include "src/store/store.h"
#include "src/unique_id.h"

static RecordLook look(const RecordName *name, RecordMemo *memo);
static RecordLook claim(const RecordName *name, const RecordMemo *memo);
static bool is_late(const RecordMemo *memo);
static bool is_in_store(const RecordName *name);
static void check_is_alone(void);
static void check_is_in_store(const RecordName *name, const RecordLook *found);
static bool all_is_propagated(void);
static void append(const pg_uuid_t *key, const char *endpoint, const char *msgid, bool is_restored);

/* Makes the key of a record: of the UTF-8 forms, so that it survives a change of encoding. */
void
record_key_make(const char *endpoint, const char *msgid, pg_uuid_t *key)
{
	char	   *endpoint8 = pg_server_to_any(endpoint, strlen(endpoint), PG_UTF8);
	char	   *msgid8 = pg_server_to_any(msgid, strlen(msgid), PG_UTF8);

	unique_id_hash(endpoint8, strlen(endpoint8), msgid8, strlen(msgid8), key);
}

/*
 * Names the record of a message; strings are copied into the current context.
 * Raises an error if the endpoint's own table cannot be used.
 */
void
record_name_make(RecordName *name, const Endpoint *endpoint, const char *msgid)
{
	name->endpoint = pstrdup(endpoint->name);
	name->msgid = OidIsValid(endpoint->mapping.table) ?
		record_table_canonical(endpoint, msgid) : pstrdup(msgid);

	/*
	 * Until the store need not know the id, a record that is still here counts:
	 * whether the store has lost it only cleanup knows.
	 */
	name->retention = Max(endpoint->retention, endpoint->store_retention);
	record_mapping_copy(&name->mapping, &endpoint->mapping);
	name->dedup_store = endpoint->dedup_store ? pstrdup(endpoint->dedup_store) : NULL;
	record_key_make(name->endpoint, name->msgid, &name->key);
	name->has_receipt = OidIsValid(endpoint->mapping.table) || endpoint->dedup_store != NULL;
}

/*
 * Looks whether a message has a record, without waiting for another
 * transaction. If memo is not NULL it notes what a claim later need not look
 * at again.
 */
RecordLook
record_look(const RecordName *name, RecordMemo *memo)
{
	RecordLook	found;

	if (memo)
	{
		memo->looked_at = GetCurrentTimestamp();
		memo->looked_at_clock = clock_now();
	}
	found = look(name, memo);
	if (found.fate != RECORD_COMMITTED && is_in_store(name))
		return (RecordLook) {.fate = RECORD_COMMITTED};
	return found;
}

/*
 * Claims a message for this transaction; memo is what record_look() noted, or
 * NULL.
 *
 * Returns RECORD_ABSENT if it was not claimed before, and now is; otherwise
 * RECORD_COMMITTED and who has it. Waits for transactions that have claimed it
 * and are still in progress. Raises 40001 if this transaction is older than
 * the retention.
 */
RecordLook
record_claim(const RecordName *name, const RecordMemo *memo)
{
	RecordMemo	own;
	RecordLook	found;

	if (name->dedup_store == NULL)
		return claim(name, memo);
	if (memo == NULL)
	{
		found = record_look(name, &own);
		if (found.fate == RECORD_COMMITTED)
			return found;
		memo = &own;
	}
	found = claim(name, memo);
	if (found.fate == RECORD_ABSENT && is_late(memo) && is_in_store(name))
		return (RecordLook) {.fate = RECORD_COMMITTED};
	return found;
}

/* Looks where the endpoint keeps its records. */
static RecordLook
look(const RecordName *name, RecordMemo *memo)
{
	if (OidIsValid(name->mapping.table))
	{
		RecordLook	found = record_table_look(name);

		if (found.fate != RECORD_ABSENT)
			return found;
	}

	/* It may have had records here before it got a table. */
	return record_ring_look(name, memo);
}

static RecordLook
claim(const RecordName *name, const RecordMemo *memo)
{
	if (OidIsValid(name->mapping.table))
		return record_table_claim(name);
	return record_ring_claim(name, memo);
}

/*
 * Whether somebody may have let a record go since the look that the memo is
 * of: that happens outbox.replay_window after the id was added to the store,
 * at the earliest. That goes by the wall clock, which may be set; half of it is
 * a margin.
 */
static bool
is_late(const RecordMemo *memo)
{
	int64		limit = outbox_replay_window * USECS_PER_SEC / 2;

	return GetCurrentTimestamp() - memo->looked_at >= limit || clock_now() - memo->looked_at_clock >= limit;
}

/* Raises an error if that cannot be found out. */
static bool
is_in_store(const RecordName *name)
{
	return name->dedup_store && store_contains(name->dedup_store, &name->key);
}

/*
 * Has a message forgotten wherever the endpoint's ids are kept: the next claim of
 * it succeeds. False if it was not known.
 *
 * Raises 25001 if there is a store and this is not a transaction of its own, for
 * what is removed there is so at once; and 55000 if the id is still to be added.
 */
bool
record_forget(const RecordName *name)
{
	RecordLook	in_ring;
	RecordLook	in_table = {.fate = RECORD_ABSENT};
	bool		known;

	if (name->dedup_store)
		check_is_alone();
	known = record_ring_forget(name, &in_ring);
	if (OidIsValid(name->mapping.table) && record_table_forget(name, &in_table))
		known = true;
	if (name->dedup_store)
	{
		/* Only now: a claim may have been waited for. An error undoes what was done. */
		check_is_in_store(name, &in_ring);
		check_is_in_store(name, &in_table);
		if (store_remove(name->dedup_store, &name->key))
			known = true;
	}
	return known;
}

static void
check_is_alone(void)
{
	if (IsTransactionBlock())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("ids in a deduplication store cannot be forgotten in a transaction block"),
				 errdetail("A store takes part in no transaction: what is removed there does not come back by ROLLBACK.")));
}

/* Raises an error if a record may still be added to the store. */
static void
check_is_in_store(const RecordName *name, const RecordLook *found)
{
	Window		window;

	if (found->fate != RECORD_COMMITTED || (found->in_table && found->dispatched && all_is_propagated()) ||
		(!found->in_table && !FullTransactionIdIsValid(found->tx)))
		return;
	if (!found->in_table && window_handed_over_in(SnapshotSelf, &window) &&
		snapshot_value_sees(window.snapshot, found->tx))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("message \"%s\" is not yet in the deduplication store", name->msgid),
			 errhint("It is added when all that the message caused is in Redis. Try again then.")));
}

/* Whether stores have been told of all that is in Redis: a mark in a table does not say so. */
static bool
all_is_propagated(void)
{
	Window		published;
	Window		propagated;

	return window_published(&published) && window_propagated(&propagated, false) &&
		propagated.number >= published.number;
}

/*
 * Writes a record of which only the key may be known (endpoint and msgid are then
 * NULL), unless it is there already, and safe; like a claim, but of any age.
 */
void
record_append(const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	append(key, endpoint, msgid, false);
}

/* The same with a record that a dump has brought: it does not undo that its id was forgotten. */
void
record_restore(const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	append(key, endpoint, msgid, true);
}

static void
append(const pg_uuid_t *key, const char *endpoint, const char *msgid, bool is_restored)
{
	RecordName	name = {
		.endpoint = (char *) endpoint,
		.msgid = (char *) msgid,
		.key = *key,
		.retention = PG_INT64_MAX,
		.is_restored = is_restored
	};
	RecordLook	look;

	look = record_ring_claim(&name, NULL);
	durable_wait(&look);
}
