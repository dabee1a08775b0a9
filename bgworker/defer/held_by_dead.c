/*
 * held_by_dead.c
 *		Messages that a dead one holds back.
 *
 * Called by deferral.c and deferred_count.c. Where a destination is set to hold, a dead message
 * holds back the later ones of its key, or those without a key if it has none, until
 * it is retried or discarded. Messages of other keys are sent.
 *
 *	 waiting, or read from the log --(an earlier one of the key is dead)--> held
 *	 held --(none is dead any more, or the setting has changed)--> waiting
 *
 * No row is waited for that another session has locked: an administrator may delete
 * messages, and not commit for long. If one that is to be held or let go is locked, its
 * destination is blocked as if it were paused, and all is looked at again a little later.
 * Until then nothing is sent there, so nothing can come before that row, nor that row
 * before a dead one.
 *
 * What is in outbox.deferred counts. In memory there is, for each such key, the
 * first message that is dead. Both are brought into line whenever others may have
 * changed the table: so a message that was held while an administrator retried the
 * dead one is let go by the same reading that lets go the others. The retried one
 * has a lower id, and so comes first.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/held_by_dead.h"
#include "bgworker/defer/reload_pace.h"
#include "bgworker/process/transaction.h"
#include "src/clock.h"
#include "src/log/deferred.h"
#include "src/record/record_name.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/* A key of a destination, and its first message that is dead. */
typedef struct DeadKey
{
	pg_uuid_t	hash;			/* of both, hash key */
	int64		id;
} DeadKey;

/*
 * Conditions on a message w: it is of the same key as h, and later. A key is never
 * empty. The keys are compared by =, so that they can be hashed: there may be
 * thousands of both.
 */
#define IS_BEHIND(h) \
	"w.dest = " h ".dest AND coalesce(w.partition_key, '') = coalesce(" h ".partition_key, '') AND w.id > " h ".id"

/* Those of some rows that no other session has locked. */
#define FREE_OF(rows) \
	"free AS MATERIALIZED (SELECT id FROM outbox.deferred WHERE id = ANY (ARRAY(SELECT id FROM " rows ")) FOR NO KEY UPDATE SKIP LOCKED)"

/*
 * Holds what is behind the first dead message of a key, where the destination is
 * set to hold, and lets go what is not. Returns these first ones, and each destination
 * of which a row was locked, with the number of those that could not be let go. All parts
 * see the same rows. There may be many, and the planner does not know, so that no part joins
 * another one that is large.
 */
#define SETTLE \
	"WITH first AS MATERIALIZED (" \
	"SELECT f.dest, f.partition_key, min(f.id) AS id FROM outbox.deferred f JOIN outbox.destination d ON d.dest = f.dest " \
	"WHERE f.state = 'dead' AND d.on_dead = 'hold' GROUP BY f.dest, f.partition_key), " \
	"wrong AS MATERIALIZED (" \
	"SELECT w.id FROM first h JOIN outbox.deferred w ON w.state = 'waiting' AND " IS_BEHIND("h") " " \
	"UNION ALL SELECT w.id FROM outbox.deferred w WHERE w.state = 'held' AND NOT EXISTS (SELECT FROM first h WHERE " IS_BEHIND("h") ")), " \
	FREE_OF("wrong") ", " \
	"settled AS (UPDATE outbox.deferred SET state = CASE state WHEN 'held' THEN 'waiting' ELSE 'held' END, " \
	"next_attempt = CASE state WHEN 'held' THEN clock_timestamp() ELSE next_attempt END " \
	"WHERE id = ANY (ARRAY(SELECT id FROM free)) AND state IN ('held', 'waiting')) " \
	"SELECT dest, partition_key, id, false FROM first " \
	"UNION ALL SELECT dest, NULL, count(*) FILTER (WHERE state = 'held'), true FROM outbox.deferred " \
	"WHERE id = ANY (ARRAY(SELECT id FROM wrong EXCEPT SELECT id FROM free)) GROUP BY dest"

/* Returns how many messages are behind a dead one, and how many of them are held from now on: those that are not locked. */
static Statement hold_behind = {
	"WITH wrong AS MATERIALIZED (SELECT w.id FROM outbox.deferred w, (SELECT $1, $2, $3) h (dest, partition_key, id) "
	"WHERE w.state = 'waiting' AND " IS_BEHIND("h") "), " FREE_OF("wrong") ", "
	"settled AS (UPDATE outbox.deferred SET state = 'held' WHERE id = ANY (ARRAY(SELECT id FROM free)) AND state = 'waiting' RETURNING 1) "
	"SELECT (SELECT count(*) FROM wrong), (SELECT count(*) FROM settled)",
	3, {TEXTOID, TEXTOID, INT8OID}
};

/* How long it takes until rows are looked at again that were locked. */
#define LOCKED_REST_MS	1000

static MemoryContext context;
static HTAB *dead_keys;
static HTAB *holding;			/* destinations that have such a key */
static int64 held;				/* how many messages */
static int64 locked;			/* of these, those that no dead one holds back
								 * any more, but another session has locked */
static TimestampTz oldest;		/* when the oldest of them was enqueued,
								 * about; 0 = there is none */
static List *unsettled;			/* destinations of which a row was locked */
static TimestampTz next_settling;	/* when these are looked at again, by
									 * clock_now() */

static void run_query(const char *sql);
static void settle(void);
static void note_unsettled(const char *dest, int64 still_held);
static void note_dead(const char *dest, const char *key, int64 id);
static void make_hash(const char *dest, const char *key, pg_uuid_t *hash);

/* Reads which messages are dead, holds what is behind them, and lets go what is not. Needs an open transaction. */
void
held_by_dead_load(void)
{
	bool		isnull;
	Datum		at;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox keys with dead messages", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	unsettled = NIL;
	locked = 0;
	dead_keys = hash_create("outbox keys with dead messages", 16,
							&(HASHCTL) {.keysize = sizeof(pg_uuid_t), .entrysize = sizeof(DeadKey), .hcxt = context},
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	holding = destination_make_table("outbox destinations that hold messages", context, MAX_NAME_BYTES + 1);
	SPI_connect();
	settle();
	run_query("SELECT count(*), min(enqueued_at) FROM outbox.deferred WHERE state = 'held'");
	held = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	locked = Min(locked, held);
	at = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull);
	oldest = isnull ? 0 : DatumGetTimestampTz(at);
	SPI_finish();
}

/* Check whether a message must wait behind a dead one. Needs an open transaction. */
bool
held_by_dead_holds(const Message *message)
{
	const char *dest;
	const DeadKey *dead;
	pg_uuid_t	hash;

	/*
	 * Whether the destination is set to hold is what the table said when it
	 * was brought into line with that, and not what was read of it before.
	 */
	dest = destination_look_up(holding, message->dest);
	if (dest == NULL)
		return false;
	make_hash(dest, message->partition_key ? text_to_cstring(message->partition_key) : NULL, &hash);
	dead = hash_search(dead_keys, &hash, HASH_FIND, NULL);
	return dead && dead->id < message->id;
}

/* Notes that a message was written as held. */
void
held_by_dead_note(const Message *message)
{
	held++;
	if (oldest == 0 || message->at < oldest)
		oldest = message->at;
}

/*
 * Notes that a message has been written as dead, in the row with that id. Returns how
 * many messages that waited for their destination are held from now on. Needs an open
 * transaction.
 */
int64
held_by_dead_note_dead(const Message *message, int64 id)
{
	const Destination *destination = destination_find(message->dest);
	char	   *key = message->partition_key ? text_to_cstring(message->partition_key) : NULL;
	int64		behind;
	int64		settled;
	bool		isnull;

	if (destination == NULL || !destination->holds)
		return 0;
	note_dead(destination->dest, key, id);

	/* A statement sees only what has been appended before. */
	deferred_end_append();
	SPI_connect();
	(void) transaction_run(&hold_behind, (Datum[]) {
		PointerGetDatum(message->dest), PointerGetDatum(message->partition_key), Int64GetDatum(id)
	}, key ? NULL : " n ");
	behind = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	settled = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	SPI_finish();
	held += settled;

	/* Nothing that waits is returned before the table is read again. */
	if (settled < behind)
		reload_pace_ask();
	return settled;
}

/* Calls visit() for each destination of which a row was locked, so that nothing may be sent there. */
void
held_by_dead_each_unsettled(void (*visit) (const char *dest))
{
	ListCell   *cell;

	foreach(cell, unsettled)
		visit(lfirst(cell));
}

/*
 * Returns how long until the rows that were locked are to be looked at again. That is not asked
 * for during the rest after a reading: until it is over nothing would be returned, and nothing
 * ever if a reading takes longer than the locked rows are left alone.
 */
long
held_by_dead_ms_until_settling(void)
{
	return unsettled ? Max(TimestampDifferenceMilliseconds(clock_now(), next_settling), reload_pace_rest_ms()) : PG_INT32_MAX;
}

/* Check whether the table must be read again, for that reason or another one, before anything is returned that waits. */
bool
held_by_dead_awaits_settling(void)
{
	if (held_by_dead_ms_until_settling() <= 0)
		reload_pace_ask();
	return reload_pace_comes_first();
}

/* Returns how many messages are held. */
int64
held_by_dead_count(void)
{
	return held;
}

/* Returns how many of them are held only because another session has locked them. */
int64
held_by_dead_locked(void)
{
	return locked;
}

/* Returns when the oldest of them was enqueued, or an earlier one that was let go; 0 if there is none. */
TimestampTz
held_by_dead_oldest(void)
{
	return held > 0 ? oldest : 0;
}

/* Runs a query without parameters. Needs SPI_connect(). */
static void
run_query(const char *sql)
{
	own_table_require(relations_enter()->deferred, OWN_DEFERRED);
	(void) transaction_query(sql, 0, NULL, NULL, NULL);
}

/*
 * Brings the table into line with what is dead, and notes the first dead message of each
 * key, and where that was not possible. Needs SPI_connect().
 */
static void
settle(void)
{
	SPITupleTable *rows;
	int			level = NewGUCNestLevel();

	/*
	 * The table may have grown since it was last analyzed; a nested loop
	 * would then compare each row with each dead key.
	 */
	settings_override("enable_nestloop", "off");
	run_query(SETTLE);
	AtEOXact_GUC(false, level);
	own_rows_require(ROWS_DEAD);
	rows = SPI_tuptable;
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		const char *dest = SPI_getvalue(rows->vals[i], rows->tupdesc, 1);
		int64		id_or_count = DatumGetInt64(SPI_getbinval(rows->vals[i], rows->tupdesc, 3, &isnull));

		if (DatumGetBool(SPI_getbinval(rows->vals[i], rows->tupdesc, 4, &isnull)))
			note_unsettled(dest, id_or_count);
		else
			note_dead(dest, SPI_getvalue(rows->vals[i], rows->tupdesc, 2), id_or_count);
	}
}

/* Notes a destination of which a row was locked, and how many of its messages are still held for that. */
static void
note_unsettled(const char *dest, int64 still_held)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	unsettled = lappend(unsettled, pstrdup(dest));
	MemoryContextSwitchTo(caller);
	locked += still_held;
	next_settling = TimestampTzPlusMilliseconds(clock_now(), LOCKED_REST_MS);
}

/* Notes a dead message of a key. */
static void
note_dead(const char *dest, const char *key, int64 id)
{
	pg_uuid_t	hash;
	bool		found;
	DeadKey    *dead;

	(void) hash_search(holding, dest, HASH_ENTER, NULL);
	make_hash(dest, key, &hash);
	dead = hash_search(dead_keys, &hash, HASH_ENTER, &found);
	if (!found || id < dead->id)
		dead->id = id;
}

/* Makes one value of a destination and a key, which is never empty; NULL = none. */
static void
make_hash(const char *dest, const char *key, pg_uuid_t *hash)
{
	record_name_make_key(dest, key ? key : "", hash);
}
