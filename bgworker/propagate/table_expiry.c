/*
 * table_expiry.c
 *		Deletes expired records from custom record tables, in rounds.
 *
 * Called by bookkeeper.c, which begins a round when the dispatcher asks for one.
 * A round gives each table its turn until none of its records has expired, its
 * statement fails, or the turn has lasted long enough. table_statement.c limits what
 * these statements may do, and handles those that fail or hang. It may all be done twice.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/propagate/table_expiry.h"
#include "bgworker/propagate/table_pace.h"
#include "bgworker/propagate/table_quarantine.h"
#include "bgworker/propagate/table_statement.h"
#include "src/clock.h"
#include "src/record/endpoint.h"
#include "src/record/record_table.h"
#include "src/shared.h"

/* How many records one statement deletes. */
#define EXPIRY_BATCH	1000

/*
 * How long a table has its turn in a round: triggers may make new expired records of those
 * that are deleted, and other tables wait for the next round.
 */
#define TURN_MS			20000

/* An endpoint whose expired records are being deleted. */
typedef struct Expiry
{
	char	   *endpoint;
	Oid			table;
	TimestampTz from;			/* everything dispatched before this is done */
	bool		in_order;		/* a statement got no further: records of one
								 * moment are tried in the order of their
								 * places */
	ItemPointerData place;		/* those of that moment are done up to here */
	TimestampTz rests_until;	/* because its last statement took long */
	TimestampTz begun;			/* its turn; 0 = not yet */
} Expiry;

static MemoryContext context;	/* memory of the round of expiry */
static List *expiries;			/* of Expiry */
static char expiry_error[256];	/* error of this round, or of the last one */

static void put_last(Oid table);
static Expiry *find_due(void);
static bool go_on(Expiry *expiry, const TableStatement *statement);
static void delete_expired(TableStatement *statement);

/* Begins a round for all endpoints that have such tables. */
void
table_expiry_begin(void)
{
	ListCell   *cell;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox expiry", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	expiries = NIL;
	expiry_error[0] = '\0';
	if (!transaction_begin("reading endpoints"))
		return;
	foreach(cell, endpoint_list())
	{
		Endpoint   *endpoint = lfirst(cell);
		MemoryContext caller = MemoryContextSwitchTo(context);

		if (OidIsValid(endpoint->mapping.table))
		{
			Expiry	   *expiry = palloc0(sizeof(Expiry));

			expiry->endpoint = pstrdup(endpoint->name);
			expiry->table = endpoint->mapping.table;
			expiry->from = DT_NOBEGIN;
			ItemPointerSet(&expiry->place, 0, InvalidOffsetNumber);
			expiries = lappend(expiries, expiry);
		}
		MemoryContextSwitchTo(caller);
	}
	transaction_commit();
	put_last(table_quarantine_ended_at());
}

/*
 * Deletes some expired records of a table that does not rest. Returns false
 * when the round is finished. Rows that are locked are left to the next round.
 */
bool
table_expiry_run(void)
{
	Expiry	   *expiry = find_due();
	TableStatement statement = {0};
	TimestampTz begun = clock_now();

	if (expiry == NULL)
		return expiries != NIL;
	if (expiry->begun == 0)
		expiry->begun = begun;
	statement.from = expiry->from;
	statement.in_order = expiry->in_order;
	statement.place = expiry->place;
	if (!table_statement_run(delete_expired, &statement, expiry->endpoint, "deleting expired records"))
	{
		strlcpy(expiry_error, table_statement_error(), sizeof(expiry_error));
		statement.rows = statement.tried = 0;
	}
	expiry->rests_until = table_pace_rest_after(begun);
	if (!go_on(expiry, &statement) || clock_now() - expiry->begun > TURN_MS * INT64CONST(1000))
		expiries = list_delete_ptr(expiries, expiry);
	pg_atomic_fetch_add_u64(&shared_mine()->records_removed, statement.rows);
	return expiries != NIL;
}

/* Returns how long until table_expiry_run() has something to do, in a round. */
long
table_expiry_ms_until_due(void)
{
	TimestampTz now = clock_now();
	long		ms = PG_INT32_MAX;
	ListCell   *cell;

	foreach(cell, expiries)
		ms = Min(ms, TimestampDifferenceMilliseconds(now, ((Expiry *) lfirst(cell))->rests_until));
	return ms;
}

/* Returns the error of the last round of expiry; "" = none. */
const char *
table_expiry_error(void)
{
	return expiry_error;
}

/*
 * Moves a table, and those before it, to the end of the list, so that all get
 * their turn, even if many of them hang.
 */
static void
put_last(Oid table)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	for (int n = 1; n < list_length(expiries); n++)
	{
		if (((Expiry *) list_nth(expiries, n - 1))->table != table)
			continue;
		expiries = list_concat(list_copy_tail(expiries, n), list_truncate(list_copy(expiries), n));
		break;
	}
	MemoryContextSwitchTo(caller);
}

/* Returns the first that does not rest; NULL if there is none. */
static Expiry *
find_due(void)
{
	TimestampTz now = clock_now();
	ListCell   *cell;

	foreach(cell, expiries)
	{
		Expiry	   *expiry = lfirst(cell);

		if (expiry->rests_until <= now)
			return expiry;
	}
	return NULL;
}

/*
 * Notes where the next statement begins. Returns false if no other expired records are
 * left. A trigger may keep records from being deleted; those behind them get their turn. If
 * it keeps as many of one moment as a statement tries, these are gone through place by
 * place, which means sorting them, until the next moment.
 */
static bool
go_on(Expiry *expiry, const TableStatement *statement)
{
	bool		is_same_moment = statement->upto == expiry->from;

	if (statement->tried < EXPIRY_BATCH)
		return false;
	if (is_same_moment && expiry->in_order)
		expiry->place = statement->last;
	else
		ItemPointerSet(&expiry->place, 0, InvalidOffsetNumber);
	expiry->in_order = is_same_moment && (expiry->in_order || statement->rows == 0);
	expiry->from = statement->upto;
	return true;
}

/* Deletes the oldest expired records that are not locked. */
static void
delete_expired(TableStatement *statement)
{
	const RecordMapping *mapping = &statement->endpoint->mapping;
	const char *table = record_table_name(mapping->table);
	const char *at = quote_identifier(mapping->dispatched_at);
	const char *zone = statement->shape.zoned ? "" : " AT TIME ZONE 'UTC'";
	TimestampTz now = GetCurrentTimestamp();
	const char *by_place = statement->in_order ? ", expired.ctid" : "";
	Datum		bounds[3] = {TimestampTzGetDatum(statement->from), 0, PointerGetDatum(&statement->place)};
	Datum		result[4];

	/* The retention is longer than the time since the epoch: nothing expires. */
	if (statement->endpoint->retention > now - MIN_TIMESTAMP)
		return;
	bounds[1] = TimestampTzGetDatum(now - statement->endpoint->retention);
	table_statement_execute(statement, psprintf("WITH tried AS MATERIALIZED (SELECT ctid AS place, %s AS at FROM ONLY %s AS expired "
												"WHERE %s AND %s >= $1%s AND %s < $2%s AND (%s > $1%s OR ctid > $3) "
												"ORDER BY expired.%s%s LIMIT %d FOR UPDATE SKIP LOCKED), "
												"gone AS (DELETE FROM ONLY %s WHERE ctid = ANY(ARRAY(SELECT place FROM tried)) RETURNING true) "
												"SELECT (SELECT count(*) FROM gone), count(*), coalesce(max(at)%s, 'infinity'), "
												"(SELECT max(place) FROM tried WHERE at = (SELECT max(at) FROM tried)) FROM tried",
												at, table, quote_identifier(mapping->dispatched), at, zone, at, zone, at, zone,
												at, by_place, EXPIRY_BATCH, table, zone),
							3, (Oid[]) {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDOID}, bounds, 4, result);
	statement->rows = DatumGetInt64(result[0]);
	statement->tried = DatumGetInt64(result[1]);
	statement->upto = DatumGetTimestampTz(result[2]);
	if (statement->tried > 0)
		statement->last = *(ItemPointer) DatumGetPointer(result[3]);
}
