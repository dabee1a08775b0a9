/*
 * store_propagation.c
 *		Propagates ids to deduplication stores, and finds out whether one has lost some.
 *
 * Called by propagation.c, which decides which stores are used. A store may
 * lose its newest ids, as Redis does when it dies, and each part of it by itself. So
 * each addition writes a watermark in each part (watermark_text.c), which is compared
 * with each addition and every few seconds. If one is not what we wrote, nothing is
 * added to that part, until everything that the log still has after the oldest one has
 * been added again.
 *
 * No transaction is open while waiting for a store.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/propagate/store_propagation.h"
#include "bgworker/propagate/targets.h"
#include "bgworker/propagate/watermark_text.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/forgotten.h"
#include "src/store/masked_url.h"
#include "src/store/store.h"
#include "src/unique_id.h"

#define MAX_WINDOWS		64		/* whose receipts are collected at once */
#define FIRST_RETRY_MS	50
#define LAST_RETRY_MS	2000
#define SLOW_MS			100		/* an attempt that takes longer costs others
								 * time */

static StorePropagation *stores;	/* in TopMemoryContext */
static TimestampTz rested_until;	/* the end of all rests after attempts
									 * that failed, one after the other */
static char instance[UNIQUE_ID_BYTES];	/* whose watermarks ours are */

static StorePropagation *add_store(const char *url, int64 propagated);
static bool is_url_of(const StorePropagation *store, const char *url);
static int	find_url(const StorePropagation *store, const char *url);
static void use_next_url(StorePropagation *store);
static void name_watermarks(StorePropagation *store);
static bool compare_watermarks(StorePropagation *store, const StoreReport *report, Position *position);
static void note_success(StorePropagation *store, const StoreReport *report);
static void note_failure(StorePropagation *store, const StoreFailure *failure, TimestampTz begun);
static void report_store_problem(void);
static void note_propagated(StorePropagation *store, const Position *position);
static bool take_key(const Receipt *receipt, void *arg);
static bool add_keys(StorePropagation *store, bool is_last);

/* Prepares for use: sets the name of our instance. */
void
store_propagation_init(const char *name)
{
	strlcpy(instance, name, sizeof(instance));
}

/* Returns the first of the list of all. */
StorePropagation *
store_propagation_first(void)
{
	return stores;
}

/* Must be called before all endpoints are listed, whose stores are given to store_propagation_find(). */
void
store_propagation_begin_listing(void)
{
	for (StorePropagation *store = stores; store; store = store->next)
	{
		list_free_deep(store->urls);
		store->urls = NIL;
		store->retention = 0;
		store->endpoints = 0;
	}
}

/*
 * Returns the store with that URL, which an endpoint names; a new one has all receipts
 * up to the end of window `propagated`. URLs that differ in a password only, as while it
 * is being changed, are those of one store, with one position.
 */
StorePropagation *
store_propagation_find(const char *url, int64 propagated)
{
	StorePropagation *store = stores;
	MemoryContext caller;

	while (store && !is_url_of(store, url))
		store = store->next;
	if (store == NULL)
		store = add_store(url, propagated);
	if (find_url(store, url) < 0)
	{
		caller = MemoryContextSwitchTo(TopMemoryContext);
		store->urls = lappend(store->urls, pstrdup(url));
		MemoryContextSwitchTo(caller);
	}
	return store;
}

/* Must be called when all are listed: removes the stores, and stops using the URLs, that no endpoint names. */
void
store_propagation_end_listing(void)
{
	for (StorePropagation **link = &stores; *link;)
	{
		StorePropagation *store = *link;

		if (store->urls)
		{
			if (find_url(store, store->url) < 0)
				use_next_url(store);
			link = &store->next;
			continue;
		}
		*link = store->next;
		receipts_forget(&store->reader);
		pfree(store->url);
		pfree(store->masked);
		pfree(store);
	}
	report_store_problem();
}

/*
 * Checks that the store is there and has its watermark, and notes what is wrong
 * with it.
 */
void
store_propagation_check(StorePropagation *store, Position *position)
{
	TimestampTz begun = clock_now();
	StoreReport report;
	StoreFailure failure;

	if (!store_inspect(store->url, store->client, &report, &failure))
	{
		note_failure(store, &failure, begun);
		return;
	}
	if (report.nparts > 0 && !compare_watermarks(store, &report, position))
		return;
	store->sound = true;
	store->next_check = TimestampTzPlusMilliseconds(clock_now(), STORE_PROPAGATION_CHECK_MS);
	if (!store->refuses)
		note_success(store, &report);
}

/* Check whether there are receipts that can be propagated to a store now. */
bool
store_propagation_has_more(const StorePropagation *store, const Position *position)
{
	return store->sound && store->propagated < position->published && position->marked > store->propagated;
}

/* Propagates the next receipts to a store. Returns whether it got any further. */
bool
store_propagation_run(StorePropagation *store, Position *position)
{
	ReceiptResult result;
	int64		before = store->propagated;
	int64		upto = Min(position->published, before + MAX_WINDOWS);

	if (before < position->published && position->marked <= before)
	{
		note_propagated(store, position);
		return true;
	}
	if (!store_propagation_has_more(store, position))
		return false;
	store->n = 0;
	if (before < store->passed)
		upto = Min(upto, store->passed);
	result = receipts_read(&store->reader, before, upto, take_key, store);
	if (result == RECEIPTS_REFUSED || !add_keys(store, result == RECEIPTS_ENDED))
		return false;
	KILL_POINT("ids_added");
	if (result == RECEIPTS_ENDED)
		note_propagated(store, position);
	return result == RECEIPTS_MORE || store->propagated > before;
}

/* Adds a store to the list. */
static StorePropagation *
add_store(const char *url, int64 propagated)
{
	StorePropagation *store = MemoryContextAllocZero(TopMemoryContext, sizeof(StorePropagation));
	char	   *masked = masked_url(url);

	store->url = MemoryContextStrdup(TopMemoryContext, url);
	store->masked = MemoryContextStrdup(TopMemoryContext, masked);
	pfree(masked);
	name_watermarks(store);
	store->is_new = store->lacked = true;
	store->propagated = propagated;
	store->next = stores;
	stores = store;
	return store;
}

/* Check whether a URL differs from that of a store in a password at most. */
static bool
is_url_of(const StorePropagation *store, const char *url)
{
	if (strcmp(store->url, url) == 0 || find_url(store, url) >= 0)
		return true;
	for (StorePropagation *other = stores; other; other = other->next)
	{
		if (find_url(other, url) >= 0)
			return false;
	}
	return store_differs_in_password(store->url, url);
}

/* Returns the place of a URL among those of a store that endpoints name; -1 = none does. */
static int
find_url(const StorePropagation *store, const char *url)
{
	for (int n = 0; n < list_length(store->urls); n++)
	{
		if (strcmp(list_nth(store->urls, n), url) == 0)
			return n;
	}
	return -1;
}

/* Has a store tried with the next one of the URLs that endpoints name. */
static void
use_next_url(StorePropagation *store)
{
	char	   *next;

	if (store->urls == NIL)
		return;
	next = list_nth(store->urls, (find_url(store, store->url) + 1) % list_length(store->urls));
	if (strcmp(next, store->url) == 0)
		return;
	pfree(store->url);
	store->url = MemoryContextStrdup(TopMemoryContext, next);
	store->next_check = 0;
}

/*
 * Names the watermarks after our instance and the URL: two URLs may lead to one Redis, and
 * what came by one of them says nothing of what came by the other. Who can read the name
 * must not learn a password from it.
 */
static void
name_watermarks(StorePropagation *store)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) store->masked, strlen(store->masked), 0);

	snprintf(store->client, sizeof(store->client), "%s:%016llx", instance, (unsigned long long) hash);
}

/*
 * Compares the watermarks in the store with those that we wrote last; if we have just
 * started, takes those that are there. If they differ, goes back to the oldest one in
 * the store. Returns false if the extension is being dropped.
 */
static bool
compare_watermarks(StorePropagation *store, const StoreReport *report, Position *position)
{
	int64		back;

	if (store->knows_watermark && memcmp(&report->watermarks, &store->watermarks, sizeof(StoreWatermarks)) == 0)
		return true;
	store->sound = false;
	if (!transaction_begin("reading the position"))
		return false;
	back = watermark_text_oldest(report, store->endpoints);
	transaction_commit();
	store->lacks_watermark = back < store->propagated;
	if (store->lacks_watermark)
	{
		if (store->knows_watermark)
			ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" has lost ids; adding again all that is in the log after window %lld",
								 store->masked, (long long) back)));
		store->propagated = back;
		store->lacks_upto = position->published;
		store->lacked = true;
		position_expect_receipts_after(position, back);
	}
	receipts_forget(&store->reader);
	if (!store->knows_watermark)
		store->settled_at = clock_now();
	store->nparts = report->nparts;
	store->watermarks = report->watermarks;
	store->knows_watermark = true;
	return true;
}

/*
 * Notes that a store is there, and has its watermark. It may still be set to
 * forget ids; then that is its problem.
 */
static void
note_success(StorePropagation *store, const StoreReport *report)
{
	if (store->is_away)
		ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" can be used again", store->masked)));
	store->is_away = false;
	store->retry_ms = 0;
	store->problem[0] = '\0';
	if (report->evicts)
		snprintf(store->problem, sizeof(store->problem),
				 "The deduplication store \"%s\" may forget ids when its memory is full. Set its maxmemory-policy to noeviction.",
				 store->masked);
	else if (report->retention != 0 && report->retention < store->retention)
	{
		snprintf(store->problem, sizeof(store->problem),
				 "The deduplication store \"%s\" forgets ids after %lld s, but an endpoint needs them for %lld s. Raise outbox.retention there.",
				 store->masked, (long long) (report->retention / USECS_PER_SEC), (long long) (store->retention / USECS_PER_SEC));
		store_close(store->url);	/* it is the session's own setting that
									 * was read */
	}
	report_store_problem();
}

/*
 * Notes that a store cannot be used. One that does not answer costs time; before it is
 * tried again, all else gets as much time. The rests of several follow each other.
 */
static void
note_failure(StorePropagation *store, const StoreFailure *failure, TimestampTz begun)
{
	TimestampTz now = clock_now();

	snprintf(store->problem, sizeof(store->problem),
			 "The deduplication store \"%s\" cannot be used, so ids wait and its endpoints refuse messages: %s. Repair the store, or correct the URL in its endpoints.",
			 store->masked, failure->text);
	if (!store->is_away)
		ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" cannot be used: %s", store->masked, failure->text),
					  errdetail("Ids wait until it can be used again.")));
	store->is_away = true;
	store->sound = false;
	store->retry_ms = store->retry_ms == 0 ? FIRST_RETRY_MS : Min(store->retry_ms * 2, LAST_RETRY_MS);
	use_next_url(store);
	store->next_check = TimestampTzPlusMilliseconds(now, store->retry_ms);
	if (now - begun >= SLOW_MS * INT64CONST(1000))
	{
		rested_until = Max(rested_until, begun) + 2 * (now - begun);
		store->next_check = Max(store->next_check, rested_until);
	}
	report_store_problem();
}

/* Reports one of the stores that have a problem in the views. */
static void
report_store_problem(void)
{
	const char *problem = NULL;

	for (StorePropagation *store = stores; store; store = store->next)
	{
		if (store->problem[0] != '\0')
			problem = store->problem;
	}
	if (problem)
		problem_set(PROBLEM_STORE, "%s", problem);
	else
		problem_clear(PROBLEM_STORE);
}

/* Notes that the collected receipts were propagated, or that there are none. */
static void
note_propagated(StorePropagation *store, const Position *position)
{
	store->propagated = store->reader.collected ? store->reader.upto : position->published;
	receipts_forget(&store->reader);
	if (store->lacks_upto != 0 && store->propagated >= store->lacks_upto)
	{
		if (store->lacked)
			store->settled_at = clock_now();
		store->lacks_upto = 0;
		store->lacked = false;
	}
}

/*
 * A ReceiptVisit: takes the key of a receipt that is for this store, by the last listing of the
 * endpoints (targets.c). Receipts of ids forgotten since are ignored. A retention that has been made
 * longer counts already.
 */
static bool
take_key(const Receipt *receipt, void *arg)
{
	StorePropagation *store = arg;
	const Target *target;
	Endpoint	endpoint;
	char	   *name;

	/* The first receipt of its record has named the endpoint. */
	if (receipt->endpoint == NULL)
		return true;

	/* Freed at once: there may be millions of them in one user transaction. */
	name = text_to_cstring(receipt->endpoint);
	(void) endpoint_find(name, &endpoint);
	target = target_find(name);
	if (target && target->store == store && !forgotten_holds(&receipt->key))
	{
		store->keys[store->n++] = (StoreKey) {
			.key = receipt->key,
			.retention = Max(target->store_retention, endpoint.store_retention)
		};
		store->lacked |= target->is_new_in_store && store->propagated < store->passed;
	}
	pfree(name);
	return store->n < STORE_PROPAGATION_KEYS;
}

/*
 * Adds the keys that were taken. Each addition changes the watermarks, so that the next
 * one finds them changed back if what was added is lost; the last addition of some
 * windows makes them name the last of these.
 */
static bool
add_keys(StorePropagation *store, bool is_last)
{
	TimestampTz begun = clock_now();
	StoreWatermarks next;
	StoreFailure failure;

	if (store->n == 0 && !(is_last && store->lacks_watermark))
		return true;
	watermark_text_write_next(&store->watermarks, store->nparts, is_last ? &store->reader : NULL, store->endpoints, &next);
	if (!store_add(store->url, store->keys, store->n,
				   &(StoreComparison) {.client = store->client, .expected = &store->watermarks, .next = &next}, &failure))
	{
		/* Read all of these windows once more. */
		receipts_forget(&store->reader);
		store->refuses = true;
		note_failure(store, &failure, begun);
		return false;
	}
	if (store->refuses)
		store->next_check = 0;
	store->refuses = false;
	store->lacks_watermark = !is_last;
	store->watermarks = next;
	return true;
}
