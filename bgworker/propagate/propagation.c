/*
 * propagation.c
 *		Propagates the ids of processed messages to stores and custom record tables.
 *
 * Called by the dispatcher after windows have been published. An endpoint may
 * keep its records in a custom record table, or its message ids in an outside
 * store. For these outbox_commit() leaves receipts in the log, so that windows
 * carry the ids here. The receipts of a window are propagated only when it is
 * in Redis; and only after that the retention of records and log segments
 * begins (position_has_published()). So an id is at every moment in at least
 * one place.
 *
 * Each store has a position of its own, so one that is away does not delay
 * others; custom record tables have another one, because that work is done by a
 * process of its own (supervision.c). The least of all is written like
 * `published` to the rows of windows, as a lower bound: after a restart all
 * begin there, because everything here may be done twice.
 *
 *	 died before all have them	the receipts are read again, all get them again
 *	 after it, before the note	the same
 *
 * A store may lose its newest ids (store_propagation.c). So nothing is emptied unless
 * all stores are there, and have had their watermarks for as long as a session
 * may rely on its own lookup (claim.c): it may have looked while ids were
 * lost.
 *
 * No transaction is open while waiting for a store; the dispatcher publishes
 * meanwhile. Receipts are read in pages (receipts.c), so memory stays bounded.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/propagate/propagation.h"
#include "bgworker/propagate/receipts.h"
#include "bgworker/propagate/store_propagation.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/propagate/targets.h"
#include "bgworker/window/window_opening.h"
#include "src/clock.h"
#include "src/record/endpoint.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/store/masked_url.h"
#include "src/store/store.h"
#include "src/unique_id.h"

#define LIST_MS			3000	/* between two readings of the endpoints */

static TimestampTz next_listing;	/* when the endpoints are read next */
static int64 listed;			/* newest window when the endpoints were read
								 * last */
static uint64 listed_reading;	/* endpoint_readings() at that time */
static uint64 tables;			/* hash of the custom record tables that
								 * endpoints have; 0 = none */
static int64 start_at;			/* position of a new store or table */
static int	new_tables;			/* tables that their endpoints did not have
								 * before */
static Oid	new_table;			/* one of them */

static bool is_behind_listing(const Position *position);
static bool note_least(Position *position);
static bool has_settled(void);
static void list_targets(Position *position);
static void add_to_hash(const Endpoint *endpoint, uint64 *hash);
static void note_target_of(const Endpoint *endpoint, bool goes_on);
static void note_what_is_new(Target *now, const Target *had);
static void go_back_for_new(Position *position);
static void check_stores(Position *position);
static bool all_stores_are_sound(void);

/*
 * Prepares for use; called once, when the dispatcher starts. `attend` is called
 * while waiting for a store.
 */
void
propagation_init(LinkAttend attend)
{
	store_attend_with(attend);
}

/* Sets the name of our watermarks. */
void
propagation_set_instance(const Instance *instance)
{
	char		id[UNIQUE_ID_BYTES];

	unique_id_write(&instance->id, id);
	store_propagation_init(id);
}

/*
 * Check whether propagation_run() may wait for a store. For one that it finds
 * only in that call it may wait all the same; then `attend` is called after a
 * moment.
 */
bool
propagation_may_wait(void)
{
	return store_propagation_first() != NULL;
}

/*
 * Propagates the next receipts of windows that are published to each store that
 * does not have them. Returns whether any store got further.
 */
bool
propagation_run(Position *position)
{
	bool		further = false;

	if (next_listing <= clock_now() || is_behind_listing(position) || endpoint_readings() != listed_reading)
		list_targets(position);
	check_stores(position);
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
		further |= store_propagation_run(store, position);

	/*
	 * The bookkeeper goes by the endpoints of now: a table may come back
	 * before the next listing.
	 */
	if (endpoint_readings() != listed_reading)
		list_targets(position);
	propagation_attend(position);
	return note_least(position) || further;
}

/*
 * Attends to the bookkeeper, which may hang: also called while waiting for a
 * store, and while dispatch is off.
 */
void
propagation_attend(const Position *position)
{
	supervision_attend(tables, position);
}

/*
 * Check whether windows opened since the endpoints were read last have
 * receipts, which may be of a new endpoint.
 */
static bool
is_behind_listing(const Position *position)
{
	return listed < position->published && position->marked > Max(listed, position->propagated);
}

/*
 * Notes up to which window all stores and tables have their ids; returns whether that has changed.
 * Not if the endpoints have been read since they were listed, or never were listed, because that was
 * refused: the bookkeeper may have left out what a table is to get.
 */
static bool
note_least(Position *position)
{
	int64		least = is_behind_listing(position) ? listed : position->published;

	if (next_listing == 0 || endpoint_readings() != listed_reading)
		return false;
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
		least = Min(least, store->propagated);
	if (tables != 0)
		least = Min(least, supervision_marked());
	if (least == position->propagated || position->marked <= position->propagated)
		return false;
	position_propagate(position, least);
	ConditionVariableBroadcast(&shared_mine()->progress);
	return true;
}

/* Check whether enough time has passed since a store may have lost ids. */
static bool
has_settled(void)
{
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (store->lacks_upto != 0 ||
			(store->knows_watermark && clock_now() - store->settled_at < outbox_replay_window * USECS_PER_SEC))
			return false;
	}
	return true;
}

/*
 * Check whether the stores still have what was propagated to them, so that it
 * need not be kept here. What was not propagated yet is kept anyway, because
 * its segment does not count as published.
 */
bool
propagation_is_sound(void)
{
	return next_listing != 0 && all_stores_are_sound() && has_settled();
}

/* Returns how long until propagation_run() has something to do. */
long
propagation_ms_until_due(const Position *position)
{
	TimestampTz now = clock_now();
	long		ms = Min(STORE_PROPAGATION_CHECK_MS, supervision_ms_until_due());

	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (store_propagation_has_more(store, position))
			return 0;
		ms = Min(ms, TimestampDifferenceMilliseconds(now, store->next_check));
	}
	return ms;
}

/*
 * Finds out which stores and tables the endpoints have now. What an endpoint was given since they were
 * listed before gets all that the log still has: it may take the place of another one, and lack what
 * that one has, or never got; and an endpoint that is created may have been dropped before, or come
 * from a dump, after its receipts. When this process starts, rows of windows tell whether
 * its predecessor knew of all that there is: then it goes on, and otherwise all begin again.
 */
static void
list_targets(Position *position)
{
	List	   *endpoints;
	ListCell   *cell;
	int64		newest = position->opened.number;
	uint64		hash = 0;
	bool		goes_on;

	if (!transaction_begin("reading endpoints"))
		return;
	endpoints = endpoint_list();
	listed_reading = endpoint_readings();
	foreach(cell, endpoints)
		add_to_hash(lfirst(cell), &hash);
	goes_on = next_listing == 0 && (int64) hash == position->targets;
	store_propagation_begin_listing();
	targets_begin_listing();
	tables = 0;
	new_tables = 0;
	start_at = goes_on ? position->propagated : window_row_oldest_number();
	foreach(cell, endpoints)
		note_target_of(lfirst(cell), goes_on);
	targets_end_listing();
	transaction_commit();
	position->targets = (int64) hash;
	store_propagation_end_listing();
	go_back_for_new(position);
	listed = newest;
	next_listing = TimestampTzPlusMilliseconds(clock_now(), LIST_MS);
}

/* Adds to a hash the store and the table of an endpoint, if it has one. */
static void
add_to_hash(const Endpoint *endpoint, uint64 *hash)
{
	if (endpoint->dedup_store || OidIsValid(endpoint->mapping.table))
		*hash += target_hash(endpoint->name, endpoint->dedup_store ? masked_url(endpoint->dedup_store) : "", endpoint->mapping.table);
}

/*
 * Notes the store and the table of an endpoint, and whether it has them since it was listed before,
 * unless they are as a predecessor knew them. For a store the longest retention of its endpoints counts.
 */
static void
note_target_of(const Endpoint *endpoint, bool goes_on)
{
	Target		now = {
		.endpoint = endpoint->name,
		.store_retention = endpoint->store_retention,
		.table = endpoint->mapping.table
	};

	if (endpoint->dedup_store)
	{
		now.store = store_propagation_find(endpoint->dedup_store, start_at);
		now.store->retention = Max(now.store->retention, endpoint->store_retention);
		now.store->endpoints += target_hash(endpoint->name, "", InvalidOid);
	}
	if (OidIsValid(now.table))
		tables += target_hash(endpoint->name, "", now.table);
	if (!goes_on)
		note_what_is_new(&now, target_before(endpoint->name));
	targets_add(&now);
}

/*
 * Notes which of these the endpoint did not have before; `had` is NULL if it was not there. It is
 * new in its store until that has all that was found to be lacking then.
 */
static void
note_what_is_new(Target *now, const Target *had)
{
	if (OidIsValid(now->table) && (had == NULL || had->table != now->table))
	{
		new_tables++;
		new_table = now->table;
	}
	if (now->store == NULL)
		return;
	if (had && had->store == now->store)
	{
		now->is_new_in_store = had->is_new_in_store && now->store->lacks_upto != 0;
		return;
	}
	now->is_new_in_store = now->store->is_new = true;
	now->store->passed = Max(now->store->passed, now->store->propagated);
	now->store->propagated = Min(now->store->propagated, start_at);
}

/*
 * Lets the position be that of the store that has least, if new ones, or new tables, have less than all others.
 * Where this process has just started, it is so already, and these may be stores for which its
 * predecessor has gone back. That is noted at once, with what was found, also while nothing can be sent: the
 * next process does not learn from a PostgreSQL store what it lacks.
 */
static void
go_back_for_new(Position *position)
{
	int64		before = position->propagated;

	if (new_tables > 0 && start_at < position->published)
	{
		position_expect_receipts_after(position, start_at);
		supervision_go_back(position, new_tables == 1 ? new_table : InvalidOid);
	}
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (store->is_new && store->propagated < position->published)
		{
			receipts_forget(&store->reader);
			store->lacks_upto = position->published;
			position_expect_receipts_after(position, store->propagated);
		}
		store->is_new = false;
	}
	if (position->propagated < before || position->targets != position->opened.targets)
		(void) window_opening_note(position);
}

/*
 * Checks the stores that are due for it. Of those that are away, and may keep silent, one at
 * a time: all else has its turn behind it.
 */
static void
check_stores(Position *position)
{
	TimestampTz now = clock_now();
	bool		any_is_away = false;

	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (store->next_check > now || (store->is_away && any_is_away))
			continue;
		store_propagation_check(store, position);
		any_is_away |= store->is_away;
	}
}

/* Check whether all stores were there when they were checked last, and had their watermarks. */
static bool
all_stores_are_sound(void)
{
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (!store->sound)
			return false;
	}
	return true;
}
