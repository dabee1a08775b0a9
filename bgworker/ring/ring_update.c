/*
 * ring_update.c
 *		Changes outbox.ring; the only place that writes that table.
 *
 * Called by rotation.c, cleanup_round.c, expiry.c, emptying.c and
 * compaction_merge.c, each time in an open transaction and after it has locked the
 * rows. Sessions learn of a change when the caller has committed it and calls
 * transaction_tell_rings(). Every change increases the generation; one that
 * brings a segment into another state also notes the time and the transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/ring_update.h"
#include "src/table/relations.h"

#define NEXT_GENERATION	"generation = (SELECT max(generation) + 1 FROM outbox.ring) "
#define INTO_STATE		"since = clock_timestamp(), tx = pg_current_xact_id(), "

/*
 * Locks the row of a segment to the end of the transaction, without waiting; called
 * before each of the functions below. Returns false if another transaction has locked
 * it, as the apply worker of a subscription does before a trigger drops its change, or
 * the whole table. It may need other rows, or the tables of the segment, next. So the
 * dispatcher, which may have locked these, must not wait for the row.
 */
bool
ring_update_try_lock(RingKind kind, int segment)
{
	return ConditionalLockRelationOid(relations_enter()->ring, RowExclusiveLock) &&
		transaction_execute("SELECT FROM outbox.ring WHERE ring = $1 AND segment = $2 FOR NO KEY UPDATE SKIP LOCKED",
							2, (Oid[]) {TEXTOID, INT4OID},
							(Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(segment)}, NULL) > 0;
}

/*
 * Brings a segment into another state, and clears published_at and
 * compacted_into.
 */
void
ring_update_state(RingKind kind, int segment, SegmentState state)
{
	(void) transaction_execute("UPDATE outbox.ring SET state = $3, published_at = NULL, compacted_into = NULL, "
							   "level = CASE WHEN $3 = 'empty' THEN 0 ELSE level END, "
							   "keys = CASE WHEN $3 = 'empty' THEN 0 ELSE keys END, "
							   INTO_STATE NEXT_GENERATION
							   "WHERE ring = $1 AND segment = $2",
							   3, (Oid[]) {TEXTOID, INT4OID, TEXTOID},
							   (Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(segment),
										  CStringGetTextDatum(segment_state_name(state))}, NULL);
}

/* Notes that everything in a quiet segment is in Redis as of now. */
void
ring_update_published(RingKind kind, int segment)
{
	(void) transaction_execute("UPDATE outbox.ring SET published_at = clock_timestamp(), "
							   NEXT_GENERATION
							   "WHERE ring = $1 AND segment = $2",
							   2, (Oid[]) {TEXTOID, INT4OID},
							   (Datum[]) {CStringGetTextDatum(ring_name(kind)), Int32GetDatum(segment)}, NULL);
}

/* Makes an empty segment of the history the target of a merge of the sources. */
void
ring_update_begin_merge(int target, RingKind kind, const int *sources, int n)
{
	(void) transaction_execute("UPDATE outbox.ring SET state = 'filling', "
							   INTO_STATE NEXT_GENERATION
							   "WHERE ring = 'history' AND segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
	for (int i = 0; i < n; i++)
		(void) transaction_execute("UPDATE outbox.ring SET compacted_into = $3, "
								   NEXT_GENERATION
								   "WHERE ring = $1 AND segment = $2",
								   3, (Oid[]) {TEXTOID, INT4OID, INT4OID},
								   (Datum[]) {CStringGetTextDatum(ring_name(kind)),
											  Int32GetDatum(sources[i]), Int32GetDatum(target)}, NULL);
}

/* Makes the target, which holds this many keys, readable instead of its sources. */
void
ring_update_finish_merge(int target, int64 keys)
{
	(void) transaction_execute("UPDATE outbox.ring r SET state = 'quiet', "
							   "published_at = s.published_at, level = s.level + 1, keys = $2, "
							   INTO_STATE NEXT_GENERATION
							   "FROM (SELECT max(published_at) AS published_at, max(level) AS level "
							   "FROM outbox.ring WHERE compacted_into = $1 AND state = 'quiet') s "
							   "WHERE r.ring = 'history' AND r.segment = $1",
							   2, (Oid[]) {INT4OID, INT8OID},
							   (Datum[]) {Int32GetDatum(target), Int64GetDatum(keys)}, NULL);
	(void) transaction_execute("UPDATE outbox.ring SET state = 'retired', published_at = NULL, "
							   INTO_STATE NEXT_GENERATION
							   "WHERE compacted_into = $1 AND state = 'quiet'",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
}

/*
 * Gives up a merge. The sources stay what they are. The target has not been
 * read yet, so it is retired like one that has expired.
 */
void
ring_update_abandon_merge(int target)
{
	(void) transaction_execute("UPDATE outbox.ring SET compacted_into = NULL, "
							   NEXT_GENERATION
							   "WHERE compacted_into = $1 AND state = 'quiet'",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
	(void) transaction_execute("UPDATE outbox.ring SET state = 'retired', "
							   INTO_STATE NEXT_GENERATION
							   "WHERE ring = 'history' AND segment = $1",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(target)}, NULL);
}
