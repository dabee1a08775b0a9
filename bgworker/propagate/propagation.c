/*
 * propagation.c
 *		Propagates what has been processed to those whom an endpoint names.
 *
 * Called by the dispatcher after windows have been published. An endpoint may
 * keep its records in a custom record table, or its message ids in an
 * outside store. For these outbox_commit() leaves receipts in the log, so that
 * windows carry the ids here. Only when a window is in Redis are its receipts
 * propagated; and only then do records and log segments begin to age
 * (position_has_published()). So an id is at every moment in at least one
 * place.
 *
 * Each store has a position of its own, so one that is away holds up nobody
 * else; custom record tables have another one, for that work is done by a process of
 * its own (supervision.c). The least of all is noted like `published` in the
 * rows of windows, as a lower bound: after a restart all begin there, for
 * everything here may happen twice.
 *
 *	 died before all are told	the receipts are read again, all are told again
 *	 after it, before the note	the same
 *
 * A store may lose its newest ids, as Redis does when it dies. So it is left a
 * mark behind them, which is compared with each addition and every few seconds.
 * If it is not the one that we left, nothing is added behind it, but what the
 * log still has after it is added again first; and nothing is emptied unless
 * all stores are there, and have had their marks for as long as a session may
 * rely on a look of its own (record.c): it may have looked while ids were lost.
 *
 * No transaction is open while a store is waited for; the dispatcher publishes
 * meanwhile. Receipts are read in pages (receipts.c), so memory stays bounded.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/propagate/propagation.h"
#include "bgworker/propagate/receipts.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/record/endpoint.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/store/store.h"

#define MAX_WINDOWS		64		/* whose receipts are collected at once */
#define MAX_KEYS		1000	/* added in one round trip */
#define CHECK_MS		3000	/* between two looks at the marks */
#define FIRST_RETRY_MS	50
#define LAST_RETRY_MS	2000

/* A store that some endpoint names. */
typedef struct UsedStore
{
	struct UsedStore *next;
	char	   *url;
	bool		wanted;			/* an endpoint names it still */
	int64		retention;		/* longest one of these endpoints */
	int64		told;			/* newest window whose receipts it has */
	ReceiptReader reader;		/* of the next ones */
	StoreKey	keys[MAX_KEYS]; /* of these, to be added next */
	int			n;
	bool		unmarked;		/* ids were added, and no mark behind them */
	bool		sound;			/* it was there, and had its mark */
	bool		refuses;		/* it could not be added to, whatever it says
								 * of itself */
	bool		is_away;		/* and the log says so */
	TimestampTz next_check;
	int			retry_ms;
	char		problem[2 * PROBLEM_BYTES]; /* it is cut when it is told; empty = none */
	bool		knows_mark;
	char		mark[STORE_MARK_BYTES]; /* that must be there */
	bool		making_up;		/* ids are added again that it has lost */
	TimestampTz settled_at;		/* when it was seen first, or had them again */
} UsedStore;

static UsedStore *stores;		/* in TopMemoryContext */
static char client[37];			/* in whose name marks are left */
static TimestampTz next_listing;	/* of those who are to be told */
static int64 listed;			/* newest window when they were listed last */
static bool uses_tables;		/* custom record tables */
static int64 start_at;			/* for a store that is new */

static void list_targets(const Position *position);
static void use_endpoint(const Endpoint *endpoint, void *arg);
static UsedStore *find_store(const char *url);
static void forget_unused(void);
static void check_stores(Position *position);
static void check_store(UsedStore *store, Position *position);
static bool compare_mark(UsedStore *store, const char *mark, Position *position);
static void store_failed(UsedStore *store, const StoreFailure *failure, TimestampTz begun);
static void store_works(UsedStore *store, const StoreReport *report);
static void report_problems(void);
static bool has_more(const UsedStore *store, const Position *position);
static bool propagate_to(UsedStore *store, Position *position);
static bool take_key(const Message *receipt, void *arg);
static bool add_keys(UsedStore *store, bool is_last);
static void windows_are_told(UsedStore *store, const Position *position);
static bool note_least(Position *position);
static bool is_behind_listing(const Position *position);
static bool has_settled(void);
static bool all_stores_are_sound(void);

/*
 * Prepares for use; once, when the dispatcher starts. `attend` is called while
 * a store is waited for.
 */
void
propagation_init(LinkAttend attend)
{
	store_attend_with(attend);
}

/* In whose name we leave marks. */
void
propagation_set_instance(const Instance *instance)
{
	char	   *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&instance->id)));

	strlcpy(client, id, sizeof(client));
	pfree(id);
}

/*
 * Propagates the next receipts of windows that are published, to each who has not
 * been told of them. Says whether anybody got any further.
 */
bool
propagation_run(Position *position)
{
	bool		further = false;

	if (next_listing <= clock_now() || is_behind_listing(position))
		list_targets(position);
	check_stores(position);
	for (UsedStore *store = stores; store; store = store->next)
		further |= propagate_to(store, position);
	propagation_attend(position);
	return note_least(position) || further;
}

/*
 * What cannot wait for a store that we wait for, nor until dispatch is on again: the
 * bookkeeper of custom record tables, which may hang.
 */
void
propagation_attend(const Position *position)
{
	supervision_attend(uses_tables, position);
}

/*
 * Whether there are receipts in windows that were opened after we have found out
 * who is to be told: of somebody new, maybe.
 */
static bool
is_behind_listing(const Position *position)
{
	return listed < position->published && position->marked > Max(listed, position->propagated);
}

/* Notes how far all have been told; says whether that is news. */
static bool
note_least(Position *position)
{
	int64		least = is_behind_listing(position) ? listed : position->published;

	for (UsedStore *store = stores; store; store = store->next)
		least = Min(least, store->told);
	if (uses_tables)
		least = Min(least, supervision_marked());
	if (least == position->propagated || position->marked <= position->propagated)
		return false;
	position_propagate(position, least);
	ConditionVariableBroadcast(&shared_mine()->progress);
	return true;
}

/* Whether there are receipts that a store can be told of now. */
static bool
has_more(const UsedStore *store, const Position *position)
{
	return store->sound && store->told < position->published && position->marked > store->told;
}

/* Whether it has been long enough since a store had lost ids, if one may. */
static bool
has_settled(void)
{
	for (UsedStore *store = stores; store; store = store->next)
	{
		if (store->making_up ||
			(store->knows_mark && clock_now() - store->settled_at < outbox_replay_window * USECS_PER_SEC))
			return false;
	}
	return true;
}

/*
 * Whether those who were told still know it: then it need not be kept here.
 * What they have not been told yet keeps itself, for its segment does not count as
 * published.
 */
bool
propagation_is_sound(void)
{
	return next_listing != 0 && all_stores_are_sound() && has_settled();
}

/* How long until propagation_run() has something to do. */
long
propagation_ms_until_due(const Position *position)
{
	TimestampTz now = clock_now();
	long		ms = Min(CHECK_MS, supervision_ms_until_due());

	for (UsedStore *store = stores; store; store = store->next)
	{
		if (has_more(store, position))
			return 0;
		ms = Min(ms, TimestampDifferenceMilliseconds(now, store->next_check));
	}
	return ms;
}

/* Finds out who is to be told now. */
static void
list_targets(const Position *position)
{
	if (!transaction_begin("reading endpoints"))
		return;
	for (UsedStore *store = stores; store; store = store->next)
		store->wanted = false;
	uses_tables = false;
	start_at = position->propagated;
	endpoint_each(use_endpoint, NULL);
	transaction_commit();
	forget_unused();
	listed = position->opened.number;
	next_listing = TimestampTzPlusMilliseconds(clock_now(), CHECK_MS);
}

static void
use_endpoint(const Endpoint *endpoint, void *arg)
{
	UsedStore  *store;

	uses_tables |= OidIsValid(endpoint->mapping.table);
	if (endpoint->dedup_store == NULL)
		return;
	store = find_store(endpoint->dedup_store);
	store->retention = store->wanted ? Max(store->retention, endpoint->store_retention) : endpoint->store_retention;
	store->wanted = true;
}

static UsedStore *
find_store(const char *url)
{
	UsedStore  *store = stores;

	while (store && strcmp(store->url, url) != 0)
		store = store->next;
	if (store == NULL)
	{
		store = MemoryContextAllocZero(TopMemoryContext, sizeof(UsedStore));
		store->url = MemoryContextStrdup(TopMemoryContext, url);
		store->told = start_at;
		store->next = stores;
		stores = store;
	}
	return store;
}

static void
forget_unused(void)
{
	for (UsedStore **link = &stores; *link;)
	{
		UsedStore  *store = *link;

		if (store->wanted)
		{
			link = &store->next;
			continue;
		}
		*link = store->next;
		receipts_forget(&store->reader);
		pfree(store->url);
		pfree(store);
	}
	report_problems();
}

/* Looks at the stores whose time has come. */
static void
check_stores(Position *position)
{
	TimestampTz now = clock_now();

	for (UsedStore *store = stores; store; store = store->next)
	{
		if (store->next_check <= now)
			check_store(store, position);
	}
}

static void
check_store(UsedStore *store, Position *position)
{
	TimestampTz begun = clock_now();
	StoreReport report;
	StoreFailure failure;

	if (!store_inspect(store->url, client, &report, &failure))
	{
		store_failed(store, &failure, begun);
		return;
	}
	if (report.keeps_marks && !compare_mark(store, report.mark, position))
		return;
	store->sound = true;
	store->next_check = TimestampTzPlusMilliseconds(clock_now(), CHECK_MS);
	if (!store->refuses)
		store_works(store, &report);
}

/*
 * What we left last must be there; when we have just started, whatever that
 * was. False if that cannot be dealt with now, for the extension is being dropped.
 */
static bool
compare_mark(UsedStore *store, const char *mark, Position *position)
{
	int64		back;

	if (store->knows_mark && strcmp(mark, store->mark) == 0)
		return true;
	store->sound = false;
	if (!transaction_begin("reading the position"))
		return false;
	back = position_of_mark(mark);
	transaction_commit();
	if (back < store->told)
	{
		if (store->knows_mark)
			ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" has lost ids; adding again what the log still has after window %lld",
								 store_masked(store->url), (long long) back)));
		store->told = back;
		store->making_up = true;
		position_receipts_after(position, back);
	}
	receipts_forget(&store->reader);
	store->unmarked = false;
	if (!store->knows_mark)
		store->settled_at = clock_now();
	strlcpy(store->mark, mark, sizeof(store->mark));
	store->knows_mark = true;
	return true;
}

/* One that keeps silent takes its time for that: others get as much before it is asked again. */
static void
store_failed(UsedStore *store, const StoreFailure *failure, TimestampTz begun)
{
	char	   *masked = store_masked(store->url);
	TimestampTz now = clock_now();

	snprintf(store->problem, sizeof(store->problem),
			 "The deduplication store \"%s\" cannot be used; ids wait, and its endpoints refuse messages: %s",
			 masked, failure->text);
	if (!store->is_away)
		ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" cannot be used, ids wait: %s", masked, failure->text)));
	pfree(masked);
	store->is_away = true;
	store->sound = false;
	store->retry_ms = store->retry_ms == 0 ? FIRST_RETRY_MS : Min(store->retry_ms * 2, LAST_RETRY_MS);
	store->next_check = now + Max(store->retry_ms * INT64CONST(1000), now - begun);
	report_problems();
}

static void
store_works(UsedStore *store, const StoreReport *report)
{
	char	   *masked = store_masked(store->url);

	if (store->is_away)
		ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" can be used again", masked)));
	store->is_away = false;
	store->retry_ms = 0;
	store->problem[0] = '\0';
	if (report->evicts)
		snprintf(store->problem, sizeof(store->problem),
				 "The deduplication store \"%s\" may forget ids when its memory is full: set its maxmemory-policy to noeviction.",
				 masked);
	else if (report->retention != 0 && report->retention < store->retention)
		snprintf(store->problem, sizeof(store->problem),
				 "The deduplication store \"%s\" forgets ids after %lld s, but an endpoint wants them for %lld s: raise outbox.retention there.",
				 masked, (long long) (report->retention / USECS_PER_SEC), (long long) (store->retention / USECS_PER_SEC));
	pfree(masked);
	report_problems();
}

/* Tells the view of the first store that has a problem. */
static void
report_problems(void)
{
	const char *problem = NULL;

	for (UsedStore *store = stores; store; store = store->next)
	{
		if (store->problem[0] != '\0')
			problem = store->problem;
	}
	if (problem)
		problem_set(PROBLEM_STORE, "%s", problem);
	else
		problem_clear(PROBLEM_STORE);
}

/* Tells a store of its next receipts. Says whether it got any further. */
static bool
propagate_to(UsedStore *store, Position *position)
{
	ReceiptResult result;

	if (store->told < position->published && position->marked <= store->told)
	{
		windows_are_told(store, position);
		return true;
	}
	if (!has_more(store, position))
		return false;
	store->n = 0;
	result = receipts_read(&store->reader, store->told, Min(position->published, store->told + MAX_WINDOWS),
						  take_key, store);
	if (result == RECEIPTS_REFUSED || !add_keys(store, result == RECEIPTS_ENDED))
		return false;
	KILL_POINT("ids_added");
	if (result == RECEIPTS_ENDED)
		windows_are_told(store, position);
	return true;
}

/* What was collected has been told, or no receipt is left. */
static void
windows_are_told(UsedStore *store, const Position *position)
{
	store->told = store->reader.collected ? store->reader.upto : position->published;
	receipts_forget(&store->reader);
	if (store->making_up && store->told >= position->published)
	{
		store->making_up = false;
		store->settled_at = clock_now();
	}
}

/*
 * A ReceiptVisit. What an endpoint that has been dropped has left concerns nobody.
 * One that names a store which is not listed yet is listed before the window
 * counts as propagated.
 */
static bool
take_key(const Message *receipt, void *arg)
{
	UsedStore  *store = arg;
	Endpoint	endpoint;
	char	   *name = text_to_cstring(receipt->message_id);

	/* There may be millions of them in one transaction of a user's. */
	if (endpoint_find(name, &endpoint) && endpoint.dedup_store && strcmp(endpoint.dedup_store, store->url) == 0)
		store->keys[store->n++] = (StoreKey) {.key = receipt->key, .retention = endpoint.store_retention};
	pfree(name);
	return store->n < MAX_KEYS;
}

/* Adds the keys that were taken; the next mark goes with the last of a batch. */
static bool
add_keys(UsedStore *store, bool is_last)
{
	TimestampTz begun = clock_now();
	StoreMark	marks = {.client = client, .expected = store->mark, .mark = ""};
	char		mark[STORE_MARK_BYTES];
	StoreFailure failure;

	if (store->n == 0 && !(is_last && store->unmarked))
		return true;
	if (is_last)
	{
		position_mark(store->reader.last, &store->reader.uuid, mark, sizeof(mark));
		marks.mark = mark;
	}
	if (!store_add(store->url, store->keys, store->n, &marks, &failure))
	{
		/* All of these windows once more. */
		receipts_forget(&store->reader);
		store->refuses = true;
		store_failed(store, &failure, begun);
		return false;
	}
	if (store->refuses)
		store->next_check = 0;
	store->refuses = false;
	store->unmarked = !is_last;
	if (is_last)
		strlcpy(store->mark, mark, sizeof(store->mark));
	return true;
}

static bool
all_stores_are_sound(void)
{
	for (UsedStore *store = stores; store; store = store->next)
	{
		if (!store->sound)
			return false;
	}
	return true;
}
