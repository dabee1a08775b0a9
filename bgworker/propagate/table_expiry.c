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

/*
 * How many records one statement tries to delete: more, up to the second number, while all that it
 * tries are of one moment and a trigger keeps them, for others of that moment may be behind them.
 */
#define EXPIRY_BATCH	1000
#define MOST_OF_MOMENT	64000

/*
 * How long the statements of a table may take in a round: triggers may make new expired records of
 * those that are deleted, and other tables wait for the next round.
 */
#define TURN_MS			20000

/* An endpoint whose expired records are being deleted. */
typedef struct Expiry
{
	char	   *endpoint;
	Oid			table;
	TimestampTz from;			/* everything dispatched before this is done */
	int			batch;			/* how many records the next statement tries */
	TimestampTz rests_until;	/* because its last statement took long */
	int64		took;			/* its statements in this round, in
								 * microseconds */
} Expiry;

static MemoryContext context;	/* memory of the round of expiry */
static MemoryContext former;	/* that of the round before it, or NULL */
static List *expiries;			/* of Expiry: those that have their turn */
static List *unfinished;		/* of Expiry: those whose turn was over before
								 * they were finished */
static char expiry_error[256];	/* error of this round, or of the last one */

static void swap_memory(void);
static Expiry *make_expiry(const Endpoint *endpoint, List *left);
static void put_last(Oid table);
static Expiry *find_due(void);
static bool go_on(Expiry *expiry, const TableStatement *statement);
static void pass_moment(Expiry *expiry);
static void leave(Expiry *expiry);
static void delete_expired(TableStatement *statement);

/* Begins a round for all endpoints that have such tables. */
void
table_expiry_begin(void)
{
	List	   *left = unfinished;
	ListCell   *cell;

	swap_memory();
	expiry_error[0] = '\0';
	if (!transaction_begin("reading endpoints"))
		return;
	foreach(cell, endpoint_list())
	{
		Endpoint   *endpoint = lfirst(cell);
		MemoryContext caller = MemoryContextSwitchTo(context);

		if (OidIsValid(endpoint->mapping.table))
			expiries = lappend(expiries, make_expiry(endpoint, left));
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
	bool		has_more;

	if (expiry == NULL)
		return expiries != NIL;
	statement.wanted = expiry->table;
	statement.from = expiry->from;
	statement.batch = expiry->batch;
	if (table_statement_run(delete_expired, &statement, expiry->endpoint, "deleting expired records"))
		has_more = go_on(expiry, &statement);
	else
	{
		strlcpy(expiry_error, table_statement_error(), sizeof(expiry_error));
		statement.rows = 0;
		has_more = expiry->batch > EXPIRY_BATCH;
		if (has_more)
			pass_moment(expiry);
	}
	expiry->took += clock_now() - begun;

	/*
	 * One that has no more turn in this round takes no rest, so none is added
	 * to those of others.
	 */
	if (!has_more)
		expiries = list_delete_ptr(expiries, expiry);
	else if (expiry->took > TURN_MS * INT64CONST(1000))
		leave(expiry);
	else
		expiry->rests_until = table_pace_rest_after(begun);
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

/* Makes room for a round, and keeps what the former one has left until the next. */
static void
swap_memory(void)
{
	MemoryContext last = former;

	former = context;
	context = last;
	if (context)
		MemoryContextReset(context);
	else
		context = AllocSetContextCreate(TopMemoryContext, "outbox expiry", ALLOCSET_SMALL_SIZES);
	expiries = unfinished = NIL;
}

/* Returns the expiry of an endpoint, which goes on where the former round has left it. */
static Expiry *
make_expiry(const Endpoint *endpoint, List *left)
{
	Expiry	   *expiry = palloc0(sizeof(Expiry));
	ListCell   *cell;

	expiry->endpoint = pstrdup(endpoint->name);
	expiry->table = endpoint->mapping.table;
	expiry->from = DT_NOBEGIN;
	expiry->batch = EXPIRY_BATCH;
	foreach(cell, left)
	{
		Expiry	   *before = lfirst(cell);

		if (before->table != expiry->table || strcmp(before->endpoint, expiry->endpoint) != 0)
			continue;
		expiry->from = before->from;
		expiry->batch = before->batch;
	}
	return expiry;
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
 * left. A trigger may keep records from being deleted; those behind them get their turn.
 */
static bool
go_on(Expiry *expiry, const TableStatement *statement)
{
	if (statement->tried < expiry->batch)
		return false;
	if (statement->upto > expiry->from)
		expiry->batch = EXPIRY_BATCH;
	else if (statement->rows == 0)
	{
		if (expiry->batch == MOST_OF_MOMENT)
			pass_moment(expiry);
		else
			expiry->batch = Min(expiry->batch * 4, MOST_OF_MOMENT);
		return true;
	}
	expiry->from = statement->upto;
	return true;
}

/* Goes on behind the moment at which the next statement would begin: what is left of it is kept, or takes too long. */
static void
pass_moment(Expiry *expiry)
{
	expiry->from = TIMESTAMP_NOT_FINITE(expiry->from) ? MIN_TIMESTAMP : expiry->from + 1;
	expiry->batch = EXPIRY_BATCH;
}

/* Ends the turn of a table that is not finished; the next round goes on with it. */
static void
leave(Expiry *expiry)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	expiries = list_delete_ptr(expiries, expiry);
	unfinished = lappend(unfinished, expiry);
	MemoryContextSwitchTo(caller);
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
	Datum		bounds[2] = {TimestampTzGetDatum(statement->from)};
	Datum		result[3];

	/* The retention is longer than the time since the epoch: nothing expires. */
	if (statement->endpoint->retention > now - MIN_TIMESTAMP)
		return;
	bounds[1] = TimestampTzGetDatum(now - statement->endpoint->retention);
	table_statement_execute(statement, psprintf("WITH tried AS MATERIALIZED (SELECT ctid AS place, %s AS at FROM ONLY %s AS expired "
												"WHERE %s AND %s >= $1%s AND %s < $2%s ORDER BY expired.%s LIMIT %d FOR UPDATE SKIP LOCKED), "
												"gone AS (DELETE FROM ONLY %s WHERE ctid = ANY(ARRAY(SELECT place FROM tried)) RETURNING true) "
												"SELECT (SELECT count(*) FROM gone), count(*), coalesce(max(at)%s, 'infinity') FROM tried",
												at, table, quote_identifier(mapping->dispatched), at, zone, at, zone, at, statement->batch, table, zone),
							2, (Oid[]) {TIMESTAMPTZOID, TIMESTAMPTZOID}, bounds, 3, result);
	statement->rows = DatumGetInt64(result[0]);
	statement->tried = DatumGetInt64(result[1]);
	statement->upto = DatumGetTimestampTz(result[2]);
}
