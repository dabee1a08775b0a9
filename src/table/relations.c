/*
 * relations.c
 *		Finds our tables once and caches their OIDs; the entry lock, and locks that last.
 *
 * Called first by everything that uses a table. Names are looked up when the
 * cache is empty, and again after any of our relations has changed: a relcache
 * callback empties the cache. The result must not be kept beyond the
 * transaction.
 *
 * The entry lock: every transaction that uses the outbox first locks
 * outbox.instance until its end, in a mode that conflicts only with DROP
 * EXTENSION; our utility hook makes what drops the extension lock that table before any
 * other. So the drop waits before it holds any lock, and cannot deadlock with
 * transactions that hold one segment and need the next. It can with a statement that
 * reads one of our views: PostgreSQL locks that before it calls us.
 *
 * Locks that last: a segment must not be emptied until a transaction that has
 * written to it ends. A lock belongs to the current resource owner, which may
 * be that of a cursor: a FETCH that fails within a savepoint releases what the
 * cursor locked, but leaves what earlier FETCHes have written. So such locks
 * belong to the transaction itself. They stay when a savepoint is rolled back,
 * which is more than needed but never wrong. For the same reason they can be
 * remembered, so that a transaction asks the lock manager once for each.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "src/compat.h"
#include "src/table/relations.h"
#include "src/table/relcache_callback.h"

static Relations cache;
static bool cache_valid;
static uint64 cache_version;	/* how often it was emptied */
static Oid	entered;			/* the relation that this transaction holds
								 * the entry lock on */

/*
 * Locks that this transaction has to its end. If there are more, they are asked
 * for again.
 */
#define MAX_REMEMBERED	8

typedef struct LastingLock
{
	Oid			relation;
	LOCKMODE	mode;
} LastingLock;

static LastingLock lasting[MAX_REMEMBERED];
static int	nlasting;

/* The rings as the extension's script makes them. */
static const struct
{
	int			nsegments;
	const char *table;			/* format with the number of a segment */
}			made[RING_KINDS] = {
	[RING_LOG] = {4, "log_%d"},
	[RING_RECORD] = {12, "record_%d"},
	[RING_HISTORY] = {24, "history_%d"}
};

static void raise_unresolved(void);
static bool is_remembered(Oid relation, LOCKMODE mode);
static bool resolve_names(Relations *relations);
static bool look_up_names(Relations *relations);
static Oid	owner_of(Oid relation);
static int	resolve_ring(Relations *relations, Oid schema, RingKind kind);
static Oid	find_relation(Relations *relations, Oid schema, const char *format, int segment);
static ResourceOwner act_for_transaction(void);
static void forget_locks(XactEvent event, void *arg);
static void forget_relations(Oid relation);
static bool is_ours(Oid relation);

/* Registers the callbacks; called once, by _PG_init. */
void
relations_init(void)
{
	relcache_callback_add(forget_relations);
	RegisterXactCallback(forget_locks, NULL);
}

/*
 * Takes the entry lock and returns the OIDs.
 *
 * Takes AccessShareLock on outbox.instance to the end of the transaction.
 * Raises 42704 if the extension is not there, 42P01 if a table that it cannot do without is not.
 */
const Relations *
relations_enter(void)
{
	for (;;)
	{
		Oid			gate;
		bool		locked;

		if (!cache_valid && !(cache_valid = resolve_names(&cache)))
			raise_unresolved();
		if (entered == cache.instance)
			return &cache;
		gate = cache.instance;
		locked = relations_lock_to_end(gate, AccessShareLock);
		if (!cache_valid)
			cache_valid = resolve_names(&cache);
		if (cache_valid && cache.instance == gate)
		{
			entered = gate;
			return &cache;
		}
		if (locked)
			relations_unlock_early(gate, AccessShareLock);
	}
}

/* Raises the error for what was not found. */
static void
raise_unresolved(void)
{
	if (OidIsValid(cache.extension))
		relations_raise_missing(NULL);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("extension \"outbox\" does not exist")));
}

/*
 * Raises 42P01 for a table that is not there under its name. Whoever has renamed it, or the
 * schema, would not look for that if the extension were said to be gone. `name` is that which
 * it was created with; NULL = it is not known which one it is.
 */
void
relations_raise_missing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("a table of the extension \"outbox\" is not where it was created"),
			 name ? errdetail("It was created as outbox.%s.", name) : 0,
			 errhint("Give the schema its name \"outbox\" back, or the table, or the sequence \"log_id_seq\", its name there. \"\\dx+ outbox\" in psql lists what has another name now.")));
}

/*
 * The same for workers: returns NULL, without waiting, if the extension is
 * not there or is being dropped.
 */
const Relations *
relations_try_enter(void)
{
	for (;;)
	{
		Oid			gate;

		if (!cache_valid && !(cache_valid = resolve_names(&cache)))
			return NULL;
		if (entered == cache.instance)
			return &cache;
		gate = cache.instance;
		if (!ConditionalLockRelationOid(gate, AccessShareLock))
			return NULL;
		if (!cache_valid)
			cache_valid = resolve_names(&cache);
		if (cache_valid && cache.instance == gate)
		{
			entered = gate;
			return &cache;
		}
		UnlockRelationOid(gate, AccessShareLock);
	}
}

/*
 * Waits until no transaction uses the outbox, and keeps others from beginning
 * to; for what drops the extension, by a user who may do that.
 */
void
relations_lock_for_drop(void)
{
	cache_valid = resolve_names(&cache);
	if (cache_valid)
		(void) relations_lock_to_end(cache.instance, AccessExclusiveLock);
}

/*
 * Locks a relation until the end of the transaction, even if the statement, the
 * cursor or the savepoint that we are called in ends before. Returns false if
 * the transaction has had that lock.
 */
bool
relations_lock_to_end(Oid relation, LOCKMODE mode)
{
	ResourceOwner caller;

	if (is_remembered(relation, mode))
		return false;
	caller = act_for_transaction();
	PG_TRY();
	{
		LockRelationOid(relation, mode);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = caller;
	}
	PG_END_TRY();
	if (nlasting < MAX_REMEMBERED)
		lasting[nlasting++] = (LastingLock) {relation, mode};
	return true;
}

/* Releases a lock that relations_lock_to_end() has taken just now, if it turns out not to be needed. */
void
relations_unlock_early(Oid relation, LOCKMODE mode)
{
	ResourceOwner caller = act_for_transaction();

	if (is_remembered(relation, mode))
		nlasting--;
	UnlockRelationOid(relation, mode);
	CurrentResourceOwner = caller;
}

/* Check whether a lock is among those that are remembered. */
static bool
is_remembered(Oid relation, LOCKMODE mode)
{
	for (int i = 0; i < nlasting; i++)
	{
		if (lasting[i].relation == relation && lasting[i].mode == mode)
			return true;
	}
	return false;
}

/* Makes the transaction the current resource owner; returns the previous one. */
static ResourceOwner
act_for_transaction(void)
{
	ResourceOwner caller = CurrentResourceOwner;

	CurrentResourceOwner = TopTransactionResourceOwner;
	return caller;
}

/* An XactCallback. */
static void
forget_locks(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE ||
		event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PARALLEL_ABORT)
	{
		entered = InvalidOid;
		nlasting = 0;
	}
}

/*
 * Looks the names up, and again if anything has changed meanwhile, unless the result
 * is the same: PostgreSQL may forget what it knows of all relations at any moment
 * (debug_discard_caches makes it do so always), although none has changed.
 */
static bool
resolve_names(Relations *relations)
{
	Relations	before;
	uint64		version;
	bool		found;

	for (bool again = false;; again = true)
	{
		CHECK_FOR_INTERRUPTS();
		version = cache_version;
		found = look_up_names(relations);
		if (version == cache_version || (again && memcmp(relations, &before, sizeof(before)) == 0))
			return found;
		before = *relations;
	}
}

/* Looks the names up once. Returns false if the extension is not there, or not yet complete. */
static bool
look_up_names(Relations *relations)
{
	Oid			schema = get_namespace_oid(OUTBOX_SCHEMA, true);
	int			nfound[RING_KINDS];

	memset(relations, 0, sizeof(*relations));
	relations->extension = get_extension_oid("outbox", true);
	if (!OidIsValid(schema) || !OidIsValid(relations->extension))
		return false;

	relations->instance = find_relation(relations, schema, "instance", 0);
	relations->owner = owner_of(relations->instance);
	relations->ring = find_relation(relations, schema, "ring", 0);
	relations->endpoint = find_relation(relations, schema, "endpoint", 0);
	relations->compacted = find_relation(relations, schema, "compacted", 0);
	relations->forgotten = find_relation(relations, schema, "forgotten", 0);
	relations->destination = find_relation(relations, schema, "destination", 0);
	relations->deferred = find_relation(relations, schema, "deferred", 0);
	relations->loss = find_relation(relations, schema, "loss", 0);
	relations->era = find_relation(relations, schema, "era", 0);
	relations->mapping = find_relation(relations, schema, "mapping", 0);
	relations->lane = find_relation(relations, schema, "lane", 0);
	relations->log_id_seq = find_relation(relations, schema, "log_id_seq", 0);
	for (int kind = 0; kind < RING_KINDS; kind++)
		nfound[kind] = resolve_ring(relations, schema, (RingKind) kind);

	/* During CREATE EXTENSION some are not there yet. */
	return OidIsValid(relations->instance) && OidIsValid(relations->log_id_seq) &&
		nfound[RING_LOG] > 0 && nfound[RING_RECORD] > 0;
}

/* Returns the owner of a relation; InvalidOid if there is no such relation. */
static Oid
owner_of(Oid relation)
{
	HeapTuple	row = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;

	if (!HeapTupleIsValid(row))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(row))->relowner;
	ReleaseSysCache(row);
	return owner;
}

/*
 * Finds the segments of a ring; returns how many there are. One whose table was renamed is
 * missing where it is used, and no other one with it.
 */
static int
resolve_ring(Relations *relations, Oid schema, RingKind kind)
{
	SegmentRelations *segments = relations->segments[kind];
	int			nfound = 0;

	relations->nsegments[kind] = made[kind].nsegments;
	for (int n = 0; n < made[kind].nsegments; n++)
	{
		segments[n].table = find_relation(relations, schema, made[kind].table, n);
		if (kind == RING_LOG)
			segments[n].window = find_relation(relations, schema, "window_%d", n);
		nfound += OidIsValid(segments[n].table);
	}
	return nfound;
}

/* Returns the oid of a relation, whose name is formatted with the number of a segment. */
static Oid
find_relation(Relations *relations, Oid schema, const char *format, int segment)
{
	char		name[NAMEDATALEN];
	Oid			oid;

	snprintf(name, sizeof(name), format, segment);
	oid = get_relname_relid(name, schema);
	if (OidIsValid(oid))
		relations->found[relations->nfound++] = oid;
	else
		relations->lacks_some = true;
	return oid;
}

/* A RelationListener. */
static void
forget_relations(Oid relation)
{
	if (cache_valid && !cache.lacks_some && relation != InvalidOid && !is_ours(relation))
		return;

	/*
	 * While names are being looked up, any change may concern us; and if one
	 * was not found, any table may get that name.
	 */
	cache_valid = false;
	cache_version++;
}

/* Check whether a change of a relation may change the oids that are remembered. */
static bool
is_ours(Oid relation)
{
	for (int i = 0; i < cache.nfound; i++)
	{
		if (relation == cache.found[i])
			return true;
	}
	return false;
}
