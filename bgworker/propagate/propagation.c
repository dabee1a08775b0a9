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
#include "bgworker/window/window_opening.h"
#include "src/clock.h"
#include "src/record/endpoint.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/store/store.h"
#include "src/unique_id.h"

#define LIST_MS			3000	/* between two readings of the endpoints */

/* An endpoint, and the store that it had when the endpoints were read. */
typedef struct StoreUse
{
	char	   *endpoint;
	StorePropagation *store;	/* NULL = none */
} StoreUse;

static TimestampTz next_listing;	/* when the endpoints are read next */
static int64 listed;			/* newest window when the endpoints were read
								 * last */
static uint64 listed_reading;	/* endpoint_readings() at that time */
static bool uses_tables;		/* an endpoint has a custom record table */
static int64 start_at;			/* position of a new store */
static List *uses;				/* of all endpoints, as they were read last */
static MemoryContext uses_context;	/* has these */

static bool is_behind_listing(const Position *position);
static bool note_least(Position *position);
static bool has_settled(void);
static void list_targets(Position *position);
static void note_target_of(const Endpoint *endpoint, void *arg);
static bool had_another_store(const char *endpoint, const StorePropagation *store, const List *before);
static void go_back_for_new(Position *position, bool tables_are_new);
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
 * does not have them. Returns whether any store got further. What one has left out because
 * an endpoint has another store since they were listed counts for none until that one has gone back.
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
	supervision_attend(uses_tables, position);
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

/* Notes up to which window all stores and tables have their ids; returns whether that has changed. */
static bool
note_least(Position *position)
{
	int64		least = is_behind_listing(position) ? listed : position->published;

	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
		least = Min(least, store->propagated);
	if (uses_tables)
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
 * Finds out which stores and tables the endpoints have now. A store that an endpoint was
 * given while this process runs gets all that the log still has: it may take the place of
 * another one, and lack what that one has, or never got. Those that are there when it starts go on.
 * So it is with the first endpoint that has a custom record table: one that a dump has is restored
 * in a transaction of its own, and may come after its receipts, and after their messages are sent.
 */
static void
list_targets(Position *position)
{
	List	   *before = uses;
	MemoryContext context_before = uses_context;
	bool		used_tables = uses_tables || next_listing == 0;

	if (!transaction_begin("reading endpoints"))
		return;
	store_propagation_begin_listing();
	uses_tables = false;
	start_at = next_listing == 0 ? position->propagated : window_row_oldest_number();
	uses = NIL;
	uses_context = AllocSetContextCreate(TopMemoryContext, "outbox stores", ALLOCSET_SMALL_SIZES);
	endpoint_each(note_target_of, before);
	listed_reading = endpoint_readings();
	if (context_before)
		MemoryContextDelete(context_before);
	transaction_commit();
	store_propagation_end_listing();
	go_back_for_new(position, uses_tables && !used_tables);
	listed = position->opened.number;
	next_listing = TimestampTzPlusMilliseconds(clock_now(), LIST_MS);
}

/*
 * Notes the store or table of an endpoint. For a store the longest retention of
 * its endpoints counts.
 */
static void
note_target_of(const Endpoint *endpoint, void *arg)
{
	StoreUse   *use;
	StorePropagation *store = NULL;
	MemoryContext caller;

	uses_tables |= OidIsValid(endpoint->mapping.table);
	if (endpoint->dedup_store)
		store = store_propagation_find(endpoint->dedup_store, start_at);
	if (store)
		store->retention = Max(store->retention, endpoint->store_retention);
	if (store && had_another_store(endpoint->name, store, arg))
	{
		store->is_new = true;
		store->propagated = Min(store->propagated, start_at);
	}

	caller = MemoryContextSwitchTo(uses_context);
	use = palloc(sizeof(StoreUse));
	*use = (StoreUse) {.endpoint = pstrdup(endpoint->name), .store = store};
	uses = lappend(uses, use);
	MemoryContextSwitchTo(caller);
}

/*
 * Check whether an endpoint had another store, or none, when they were listed before; not if it is
 * new. Rows of endpoints seldom change their places.
 */
static bool
had_another_store(const char *endpoint, const StorePropagation *store, const List *before)
{
	int			n = list_length(before);

	for (int i = 0; i < n; i++)
	{
		const StoreUse *use = list_nth(before, (list_length(uses) + i) % n);

		if (strcmp(use->endpoint, endpoint) == 0)
			return use->store != store;
	}
	return false;
}

/*
 * Lets the position be that of the store that has least, if new ones, or new tables, have less than all others.
 * Where this process has just started, it is so already, and these may be stores for which its
 * predecessor has gone back. That is noted at once, also while nothing can be sent: the next
 * process does not learn from a PostgreSQL store what it lacks.
 */
static void
go_back_for_new(Position *position, bool tables_are_new)
{
	int64		before = position->propagated;

	if (tables_are_new && start_at < position->published)
		position_expect_receipts_after(position, start_at);

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
	if (position->propagated < before)
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
