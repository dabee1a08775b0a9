/*
 * endpoint.c
 *		Reads and caches the settings of endpoints.
 *
 * Called by outbox_begin() for its endpoint, by cleanup for the longest
 * retention, and by propagation.c for stores and tables. All endpoints are read
 * at once into a cache of this backend. A trigger on the table sends the invalidation
 * that empties it (endpoint_change.c), so it also works for a restored dump.
 */
#include "postgres.h"

#include <limits.h>

#include "common/int.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "src/record/endpoint.h"
#include "src/record/endpoint_change.h"
#include "src/shared.h"
#include "src/table/relations.h"
#include "src/table/relcache_callback.h"
#include "src/table/row_scan.h"

/* Columns of outbox.endpoint. */
enum
{
	COL_NAME = 1,
	COL_CONCURRENCY,
	COL_RETENTION,
	COL_RECORD_TABLE,
	COL_RECORD_COLUMNS,
	COL_DEDUP_STORE,
	COL_STORE_RETENTION
};

/* A row of outbox.endpoint; a NULL there means a setting. */
typedef struct EndpointRow
{
	char	   *name;
	bool		has_concurrency;
	Concurrency concurrency;
	int64		retention;		/* microseconds, 0 = none of its own */
	int64		store_retention;	/* the same */
	RecordMapping mapping;
	char	   *dedup_store;
} EndpointRow;

static const EndpointRow no_row;	/* of an endpoint without settings */

/* Stands for the URL of a store that may not have been written by a superuser, and is none; errors show it. */
#define UNTRUSTED_STORE	"ignored, because the owner of outbox.endpoint is not a superuser"

static MemoryContext endpoint_cache;	/* NULL = not loaded */
static EndpointRow *rows;
static int	nrows;
static Oid	cached_relation;
static bool stale;
static uint64 readings;			/* how often they were read */

static const EndpointRow *find_row(const char *name);
static Endpoint *copy_of(const EndpointRow *row, const char *name);
static Endpoint settle_endpoint(const EndpointRow *row, const char *name);
static void load_endpoints(void);
static void load_endpoint(TupleTableSlot *slot, bool is_trusted, EndpointRow *row);
static void load_mapping(TupleTableSlot *slot, Oid table, RecordMapping *mapping);
static int64 default_retention(void);
static int64 of_dispatcher(void);
static int64 retention_of(const EndpointRow *row);
static int64 kept_by(const EndpointRow *row);
static int64 kept_by_store(const EndpointRow *row);
static int64 kept_by_settings(const EndpointRow *row);
static int64 with_store(const EndpointRow *row, int64 retention, int window);
static int64 wanted_retention(const EndpointRow *row);
static int64 interval_to_microseconds(const Interval *interval);
static void forget_endpoints(Oid relation);
static void forget_trust(Datum arg, int cache, uint32 hash);

/* Registers the invalidation callback; once, by _PG_init. */
void
endpoint_init(void)
{
	relcache_callback_add(forget_endpoints);
	CacheRegisterSyscacheCallback(AUTHOID, forget_trust, (Datum) 0);
}

/*
 * Returns the settings of an endpoint; those that are not set are taken from
 * outbox.concurrency and outbox.retention. The name in the result is the one
 * passed in; other strings are valid until the next call. Raises 42704 if there
 * is no such endpoint.
 */
Endpoint
endpoint_get(const char *name)
{
	Endpoint	endpoint;

	if (!endpoint_find(name, &endpoint))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("endpoint \"%s\" does not exist", name),
				 errhint("An administrator can create it with outbox_create_endpoint().")));
	return endpoint;
}

/* The same, but returns false if there is no such endpoint. */
bool
endpoint_find(const char *name, Endpoint *endpoint)
{
	const EndpointRow *row = find_row(name);

	*endpoint = settle_endpoint(row, name);
	return row != &no_row || strcmp(name, DEFAULT_ENDPOINT) == 0;
}

/* Calls visit() for all endpoints that have settings. It must not wait. */
void
endpoint_each(void (*visit) (const Endpoint *endpoint, void *arg), void *arg)
{
	load_endpoints();
	for (int i = 0; i < nrows; i++)
	{
		Endpoint	endpoint = settle_endpoint(&rows[i], rows[i].name);

		visit(&endpoint, arg);
	}
}

/* Returns all endpoints, palloc'd with their strings; "default" may have no row. */
List *
endpoint_list(void)
{
	List	   *endpoints = NIL;
	bool		has_default = false;

	load_endpoints();
	for (int i = 0; i < nrows; i++)
	{
		endpoints = lappend(endpoints, copy_of(&rows[i], rows[i].name));
		has_default |= strcmp(rows[i].name, DEFAULT_ENDPOINT) == 0;
	}
	return has_default ? endpoints : lappend(endpoints, copy_of(&no_row, DEFAULT_ENDPOINT));
}

/* Returns how often the endpoints were read: another number if what is known of them may have changed. */
uint64
endpoint_readings(void)
{
	return readings;
}

/*
 * Raises 40001 if the records of an endpoint are no longer kept where `mapping`
 * says, or if it now has another store, to which they would not be propagated.
 */
void
endpoint_check_place(const char *name, const RecordMapping *mapping, const char *dedup_store)
{
	const EndpointRow *now;

	AcceptInvalidationMessages();
	now = find_row(name);
	if (!record_mapping_equal(&now->mapping, mapping))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("record table of endpoint \"%s\" has changed since the message was opened", name),
				 errhint("Retry the transaction.")));
	if (strcmp(now->dedup_store ? now->dedup_store : "", dedup_store ? dedup_store : "") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("deduplication store of endpoint \"%s\" has changed since the message was opened", name),
				 errhint("Retry the transaction.")));
}

/*
 * Returns how long a record that is still here counts, in microseconds: with a store as
 * long as that must know the id, because only cleanup knows whether the store has lost it.
 */
int64
endpoint_memory(const Endpoint *endpoint)
{
	return Max(endpoint->retention, endpoint->store_retention);
}

/* Returns the longest time that any record is kept here, in microseconds. */
int64
endpoint_longest_retention(void)
{
	int64		longest = kept_by(&no_row);

	load_endpoints();
	for (int i = 0; i < nrows; i++)
		longest = Max(longest, kept_by(&rows[i]));
	return longest;
}

/* Returns the row of an endpoint, valid until the next call; no_row if it has none. */
static const EndpointRow *
find_row(const char *name)
{
	load_endpoints();
	for (int i = 0; i < nrows; i++)
	{
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	}
	return &no_row;
}

/*
 * Returns a copy of an endpoint that outlives the next endpoint_get(). Reads nothing
 * again, because that could free the row.
 */
static Endpoint *
copy_of(const EndpointRow *row, const char *name)
{
	Endpoint   *copy = palloc(sizeof(Endpoint));
	Endpoint	endpoint = settle_endpoint(row, name);

	*copy = endpoint;
	copy->name = pstrdup(name);
	record_mapping_copy(&copy->mapping, &endpoint.mapping);
	copy->dedup_store = endpoint.dedup_store ? pstrdup(endpoint.dedup_store) : NULL;
	return copy;
}

/* Returns the settings of a row, with those of the server where it has none. */
static Endpoint
settle_endpoint(const EndpointRow *row, const char *name)
{
	return (Endpoint) {
		.name = (char *) name,
		.concurrency = row->has_concurrency ? row->concurrency : (Concurrency) outbox_concurrency,
		.retention = retention_of(row),
		.kept = row->dedup_store ? Max(kept_by(row), kept_by_store(row)) : kept_by(row),
		.store_retention = row->dedup_store == NULL ? 0 :
			row->store_retention > 0 ? row->store_retention : wanted_retention(row),
		.mapping = row->mapping,
		.dedup_store = row->dedup_store
	};
}

/*
 * Returns how long records are kept here. With a store that is at least
 * outbox.replay_window: if the store loses its newest ids, they must be here
 * until it has them again, and a session that looked before a record was
 * removed must know that it has to look in the store again.
 */
static int64
retention_of(const EndpointRow *row)
{
	return with_store(row, wanted_retention(row), outbox_replay_window);
}

/* The same by the settings of our processes, which remove records: a session may have others. */
static int64
kept_by(const EndpointRow *row)
{
	DatabaseShared *shared = shared_mine();
	uint32		window = shared ? pg_atomic_read_u32(&shared->replay_window) : INT_MAX;

	return with_store(row, kept_by_settings(row), window == INT_MAX ? outbox_replay_window : (int) window);
}

/* Returns how long the store of an endpoint keeps ids, by the settings of our processes, which add them. */
static int64
kept_by_store(const EndpointRow *row)
{
	return row->store_retention > 0 ? row->store_retention : kept_by_settings(row);
}

/* Returns the retention that a row sets, or else outbox.retention as our processes have it. */
static int64
kept_by_settings(const EndpointRow *row)
{
	if (row->retention > 0)
		return row->retention;
	return of_dispatcher() > 0 ? of_dispatcher() : default_retention();
}

/*
 * Returns how long records are kept that are to be kept so long: longer if there is a store, which may
 * have to get its ids again for `window` seconds.
 */
static int64
with_store(const EndpointRow *row, int64 retention, int window)
{
	return row->dedup_store ? Max(retention, window * USECS_PER_SEC) : retention;
}

/* Returns the retention that a row sets, or else outbox.retention. */
static int64
wanted_retention(const EndpointRow *row)
{
	return row->retention > 0 ? row->retention : default_retention();
}

/*
 * Returns outbox.retention. Where the dispatcher has a longer one, it keeps records for as long, and
 * they must count: a session that is connected does not hear of what ALTER DATABASE sets.
 */
static int64
default_retention(void)
{
	return Max(outbox_retention * USECS_PER_SEC, of_dispatcher());
}

/* Returns outbox.retention as the dispatcher has it; 0 if it is not known. */
static int64
of_dispatcher(void)
{
	DatabaseShared *shared = shared_mine();

	return shared ? pg_atomic_read_u32(&shared->retention) * USECS_PER_SEC : 0;
}

/* Reads all endpoints, unless the cache is valid. */
static void
load_endpoints(void)
{
	Oid			relation = relations_enter()->endpoint;
	RowScan		scan;
	MemoryContext fresh;
	MemoryContext caller;
	int			size = 8;

	if (endpoint_cache != NULL && !stale && cached_relation == relation)
		return;
	if (endpoint_cache != NULL)
		MemoryContextDelete(endpoint_cache);
	endpoint_cache = NULL;
	nrows = 0;

	fresh = AllocSetContextCreate(CurrentMemoryContext, "outbox endpoints", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(fresh);
	rows = palloc(size * sizeof(EndpointRow));

	/* A change from now on makes it stale. */
	cached_relation = relation;
	stale = false;
	readings++;
	row_scan_begin_updated(&scan, relation, OWN_ENDPOINT);
	while (row_scan_next(&scan))
	{
		if (nrows == size)
			rows = repalloc(rows, (size *= 2) * sizeof(EndpointRow));
		endpoint_change_wait(scan.row);
		load_endpoint(scan.row, superuser_arg(scan.table->rd_rel->relowner), &rows[nrows++]);
	}
	row_scan_end(&scan);

	MemoryContextSwitchTo(caller);
	MemoryContextSetParent(fresh, TopMemoryContext);
	endpoint_cache = fresh;
}

/*
 * Reads a row; strings are palloc'd. A concurrency that is not known counts as none.
 * `is_trusted` tells that the owner of the table is a superuser.
 */
static void
load_endpoint(TupleTableSlot *slot, bool is_trusted, EndpointRow *row)
{
	bool		isnull;
	Datum		value;

	memset(row, 0, sizeof(*row));
	row->name = TextDatumGetCString(slot_getattr(slot, COL_NAME, &isnull));

	value = slot_getattr(slot, COL_CONCURRENCY, &isnull);
	if (!isnull)
		row->has_concurrency =
			settings_concurrency_from_name(TextDatumGetCString(value), &row->concurrency);

	value = slot_getattr(slot, COL_RETENTION, &isnull);
	if (!isnull)
		row->retention = interval_to_microseconds(DatumGetIntervalP(value));

	value = slot_getattr(slot, COL_RECORD_TABLE, &isnull);
	if (!isnull)
		load_mapping(slot, DatumGetObjectId(value), &row->mapping);

	value = slot_getattr(slot, COL_DEDUP_STORE, &isnull);
	if (!isnull)
		row->dedup_store = is_trusted ? TextDatumGetCString(value) : pstrdup(UNTRUSTED_STORE);

	value = slot_getattr(slot, COL_STORE_RETENTION, &isnull);
	if (!isnull)
		row->store_retention = interval_to_microseconds(DatumGetIntervalP(value));
}

/* Reads which columns of its record table an endpoint uses. */
static void
load_mapping(TupleTableSlot *slot, Oid table, RecordMapping *mapping)
{
	bool		isnull;
	Datum		columns = slot_getattr(slot, COL_RECORD_COLUMNS, &isnull);

	record_mapping_read(mapping, table, isnull ? NULL : DatumGetJsonbP(columns));
}

/* Converts an interval; as elsewhere in PostgreSQL a month has 30 days. */
static int64
interval_to_microseconds(const Interval *interval)
{
	int64		days = interval->day + interval->month * INT64CONST(30);
	int64		result;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &result) ||
		pg_add_s64_overflow(result, interval->time, &result))
		return PG_INT64_MAX;	/* forever */
	return result;
}

/* A RelationListener. */
static void
forget_endpoints(Oid relation)
{
	if (relation == InvalidOid || relation == cached_relation)
		stale = true;
}

/* A syscache callback: a role may be a superuser now, or none any more. */
static void
forget_trust(Datum arg, int cache, uint32 hash)
{
	stale = true;
}
