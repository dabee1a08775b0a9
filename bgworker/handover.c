/*
 * handover.c
 *		Hands on what has been processed to those whom an endpoint names.
 *
 * Called by the dispatcher after windows have been published. An endpoint may
 * keep its records in a table of the user's own, or its message ids in an
 * outside store. For these outbox_commit() leaves markers in the log, so that
 * windows carry the ids here. Only when a window is in Redis are its markers
 * handed on; and only then do records and log slots begin to age
 * (position_has_published()). So an id is at every moment in at least one
 * place.
 *
 * Everything here may happen twice: how far we got is noted like `published`
 * in the rows of windows.
 *
 *	 died before all are told	the markers are read again, all are told again
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
 * meanwhile.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/handover.h"
#include "bgworker/marking.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/endpoint.h"
#include "src/kill_point.h"
#include "src/log.h"
#include "src/problem.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/store.h"

#define MAX_WINDOWS		64		/* handed on at once when we are behind */
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
	bool		sound;			/* it was there, and had its mark */
	bool		refuses;		/* it could not be added to, whatever it says
								 * of itself */
	bool		is_away;		/* and the log says so */
	TimestampTz next_check;
	int			retry_ms;
	char		problem[2 * PROBLEM_BYTES]; /* it is cut when it is told; empty = none */
	bool		knows_mark;
	char		mark[STORE_MARK_BYTES]; /* that must be there */
	StoreKey   *keys;			/* of the batch; in its context */
	int			n;
	int			size;
} UsedStore;

/* The markers of the windows to be handed on next. */
typedef struct Batch
{
	int64		upto;			/* newest window of these */
	char		mark[STORE_MARK_BYTES];
} Batch;

static MemoryContext batch_context;
static UsedStore *stores;		/* in TopMemoryContext */
static char client[37];			/* in whose name marks are left */
static TimestampTz next_listing;	/* of the stores that are used */
static int64 told;				/* newest window that is dealt with but for
								 * what marking.c has put aside; 0 = unknown */
static bool making_up;			/* ids are added again that a store has lost */
static TimestampTz settled_at;	/* when we began, or had made that up */

static void list_stores(void);
static void use_store(const Endpoint *endpoint, void *arg);
static UsedStore *find_store(const char *url);
static void forget_unused(void);
static void check_stores(Position *position);
static void check_store(UsedStore *store, Position *position);
static bool compare_mark(UsedStore *store, const char *mark, Position *position);
static void store_failed(UsedStore *store, const StoreFailure *failure);
static void store_works(UsedStore *store, const StoreReport *report);
static void report_problems(void);
static bool has_more(const Position *position);
static bool read_batch(Batch *batch, int64 from, int64 upto);
static bool sort_marker(TupleTableSlot *row, int slot, void *arg);
static void add_key(UsedStore *store, const pg_uuid_t *key, int64 retention);
static bool add_to_stores(const Batch *batch);
static bool add_to_store(UsedStore *store, const char *mark);
static bool has_settled(void);
static bool all_stores_are_sound(void);

/*
 * Prepares for use; once, when the dispatcher starts. `attend` is called while
 * a store is waited for.
 */
void
handover_init(LinkAttend attend)
{
	batch_context = AllocSetContextCreate(TopMemoryContext, "outbox handover", ALLOCSET_DEFAULT_SIZES);
	marking_init();
	store_attend_with(attend);
}

/* In whose name we leave marks. */
void
handover_set_instance(const Instance *instance)
{
	char	   *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&instance->id)));

	strlcpy(client, id, sizeof(client));
	pfree(id);
}

/*
 * Hands on the markers of some windows that are published, if there are any
 * that have not been. Says whether it got any further.
 */
bool
handover_run(Position *position)
{
	Batch		batch = {0};
	int64		from;

	check_stores(position);
	marking_try_again();
	from = Max(told, position->handed_over);
	if (has_more(position))
	{
		if (!read_batch(&batch, from, Min(position->published, from + MAX_WINDOWS)))
			return false;
		KILL_POINT("markers_read");
		if (!add_to_stores(&batch))
			return false;
		KILL_POINT("ids_added");
		marking_run();
		KILL_POINT("records_marked");
		told = batch.upto;
		if (making_up && told >= position->published)
		{
			making_up = false;
			settled_at = clock_now();
		}
	}
	if (marking_is_complete() && told > position->handed_over)
	{
		position_hand_over(position, told);
		ConditionVariableBroadcast(&shared_mine()->progress);
		return true;
	}
	return told > from;
}

/* Whether there are windows that can be handed on now. */
static bool
has_more(const Position *position)
{
	return Max(told, position->handed_over) < position->published &&
		all_stores_are_sound() && marking_has_room();
}

/* Whether it has been long enough since a store had lost ids, if one may. */
static bool
has_settled(void)
{
	bool		may_lose = false;

	for (UsedStore *store = stores; store; store = store->next)
		may_lose |= store->knows_mark;
	return !may_lose ||
		clock_now() - settled_at >= outbox_replay_window * USECS_PER_SEC;
}

/*
 * Whether those who were told still know it: then it need not be kept here.
 * What they have not been told yet keeps itself, for its slot does not count as
 * published; and what is put aside likewise.
 */
bool
handover_is_sound(void)
{
	return !making_up && next_listing != 0 && all_stores_are_sound() && has_settled();
}

/* How long until handover_run() has something to do. */
long
handover_ms_until_due(const Position *position)
{
	TimestampTz now = clock_now();
	long		ms = CHECK_MS;

	if (has_more(position))
		return 0;
	ms = Min(ms, marking_ms_until_due());
	for (UsedStore *store = stores; store; store = store->next)
		ms = Min(ms, TimestampDifferenceMilliseconds(now, store->next_check));
	return ms;
}

/* Finds out which stores are used now. */
static void
list_stores(void)
{
	if (!transaction_begin("reading endpoints"))
		return;
	for (UsedStore *store = stores; store; store = store->next)
		store->wanted = false;
	endpoint_each(use_store, NULL);
	transaction_commit();
	forget_unused();
	next_listing = TimestampTzPlusMilliseconds(clock_now(), CHECK_MS);
}

static void
use_store(const Endpoint *endpoint, void *arg)
{
	UsedStore  *store;

	if (endpoint->dedup_store == NULL)
		return;
	store = find_store(endpoint->dedup_store);
	store->retention = store->wanted ? Max(store->retention, endpoint->retention) : endpoint->retention;
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

	if (next_listing <= now)
		list_stores();
	for (UsedStore *store = stores; store; store = store->next)
	{
		if (store->next_check <= now)
			check_store(store, position);
	}
}

static void
check_store(UsedStore *store, Position *position)
{
	StoreReport report;
	StoreFailure failure;

	if (!store_inspect(store->url, client, &report, &failure))
	{
		store_failed(store, &failure);
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
	bool		lost;

	if (store->knows_mark && strcmp(mark, store->mark) == 0)
		return true;
	store->sound = false;
	if (!transaction_begin("reading the position"))
		return false;
	lost = position_hand_over_again(position, mark) || position->handed_over < told;
	told = 0;
	if (lost && store->knows_mark)
		ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" has lost ids; adding again what the log still has after window %lld",
							 store_masked(store->url), (long long) position->handed_over)));
	transaction_commit();
	making_up |= lost;
	if (!store->knows_mark)
		settled_at = clock_now();
	strlcpy(store->mark, mark, sizeof(store->mark));
	store->knows_mark = true;
	return true;
}

static void
store_failed(UsedStore *store, const StoreFailure *failure)
{
	char	   *masked = store_masked(store->url);

	snprintf(store->problem, sizeof(store->problem),
			 "The deduplication store \"%s\" cannot be used; ids wait, and its endpoints refuse messages: %s",
			 masked, failure->text);
	if (!store->is_away)
		ereport(LOG, (errmsg("outbox: the deduplication store \"%s\" cannot be used, ids wait: %s", masked, failure->text)));
	pfree(masked);
	store->is_away = true;
	store->sound = false;
	store->retry_ms = store->retry_ms == 0 ? FIRST_RETRY_MS : Min(store->retry_ms * 2, LAST_RETRY_MS);
	store->next_check = TimestampTzPlusMilliseconds(clock_now(), store->retry_ms);
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

/*
 * Reads the markers of the next windows; gives each store its keys, and
 * marking.c its messages. False
 * if the extension is being dropped.
 */
static bool
read_batch(Batch *batch, int64 from, int64 upto)
{
	Window		before;
	Window		last;

	for (UsedStore *store = stores; store; store = store->next)
	{
		store->keys = NULL;
		store->n = store->size = 0;
	}
	MemoryContextReset(batch_context);
	marking_begin();

	if (!transaction_begin("reading markers"))
		return false;
	batch->upto = upto;
	if (!window_at(upto, &last))
		elog(ERROR, "no window is left");
	if (!window_at(from, &before))
		before = last;
	log_scan(GetActiveSnapshot(), before.snapshot, last.snapshot, sort_marker, NULL);
	position_mark(&last, batch->mark, sizeof(batch->mark));
	transaction_commit();
	return true;
}

/*
 * A LogReader. What an endpoint that has been dropped has left concerns nobody.
 * One that has been altered this very moment is listed here first.
 */
static bool
sort_marker(TupleTableSlot *row, int slot, void *arg)
{
	Message		marker;
	Endpoint	endpoint;
	char	   *name;
	char	   *msgid;

	if (!log_row_is_marker(row))
		return true;

	/* There may be millions of them in one transaction of ours. */
	log_row_message(row, &marker);
	name = text_to_cstring(marker.message_id);
	msgid = text_to_cstring(marker.cause);
	if (endpoint_find(name, &endpoint))
	{
		if (endpoint.dedup_store)
			add_key(find_store(endpoint.dedup_store), &marker.key, endpoint.retention);
		if (OidIsValid(endpoint.mapping.table))
			marking_add(name, msgid);
	}
	pfree(name);
	pfree(msgid);
	return true;
}

static void
add_key(UsedStore *store, const pg_uuid_t *key, int64 retention)
{
	if (store->n == store->size)
	{
		store->size = store->size ? store->size * 2 : 64;
		store->keys = store->keys ?
			repalloc_huge(store->keys, store->size * sizeof(StoreKey)) :
			MemoryContextAlloc(batch_context, store->size * sizeof(StoreKey));
	}
	store->keys[store->n].key = *key;
	store->keys[store->n].retention = retention;
	store->n++;
}

static bool
add_to_stores(const Batch *batch)
{
	for (UsedStore *store = stores; store; store = store->next)
	{
		if (store->n > 0 && !add_to_store(store, batch->mark))
			return false;
	}
	return true;
}

/* Adds the keys of the batch; the next mark goes with the last of them. */
static bool
add_to_store(UsedStore *store, const char *mark)
{
	StoreFailure failure;

	if (!store->sound)
	{
		store->next_check = 0;
		return false;
	}
	for (int done = 0; done < store->n; done += MAX_KEYS)
	{
		int			n = Min(store->n - done, MAX_KEYS);
		bool		is_last = done + n == store->n;
		StoreMark	marks = {.client = client, .expected = store->mark, .mark = is_last ? mark : ""};

		if (!store_add(store->url, store->keys + done, n, &marks, &failure))
		{
			store->refuses = true;
			store_failed(store, &failure);
			return false;
		}
	}
	if (store->refuses)
		store->next_check = 0;
	store->refuses = false;
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
