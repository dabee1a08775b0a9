/*
 * bookkeeping.c
 *		Keeps the records in custom record tables: marks them as dispatched,
 *		and deletes them when they have expired.
 *
 * Called by bookkeeper.c and marking.c. table_work.c limits what these
 * statements may do, and handles those that fail or hang. All of it may be done
 * twice.
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/propagate/bookkeeping.h"
#include "bgworker/propagate/left_alone.h"
#include "bgworker/propagate/pace.h"
#include "bgworker/propagate/reclaimed.h"
#include "bgworker/propagate/table_work.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/record/endpoint.h"
#include "src/record/record_table.h"
#include "src/shared.h"

/* How many records one statement deletes. */
#define EXPIRY_BATCH	1000

/* An endpoint whose expired records are being deleted. */
typedef struct Expiry
{
	char	   *endpoint;
	Oid			table;
	TimestampTz from;			/* everything dispatched before this is done */
	TimestampTz rests_until;	/* because its last statement took long */
} Expiry;

static MemoryContext context;	/* memory of the round of expiry */
static List *expiries;			/* of Expiry */
static char expiry_error[256];	/* error of this round, or of the last one */

static void put_last(Oid table);
static Expiry *find_due(void);
static void mark_records(TableWork *work);
static void leave_out_reclaimed(TableWork *work);
static void delete_expired(TableWork *work);
static Datum make_ids(const TableWork *work);
static bool spells_uuid(const char *text);

/*
 * Marks the records of these messages as dispatched; records that do not exist
 * or are already marked are ignored. `is_repeated` says that this may have been
 * done before with the same receipts; records that have been claimed again
 * since then are left to their next receipt.
 */
Marking
bookkeeping_mark(const char *endpoint, char **msgids, int n, bool is_repeated)
{
	TableWork	work = {.msgids = msgids, .nmsgids = n, .is_repeated = is_repeated};

	if (!table_work_run(mark_records, &work, endpoint, "marking records"))
		return MARKING_FAILED;
	return work.is_locked || work.rows > 0 ? MARKING_INCOMPLETE : MARKING_DONE;
}

/* Begins a round of expiry for all endpoints that have such tables. */
void
bookkeeping_begin_expiry(void)
{
	ListCell   *cell;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox bookkeeping", ALLOCSET_SMALL_SIZES);
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
			expiries = lappend(expiries, expiry);
		}
		MemoryContextSwitchTo(caller);
	}
	transaction_commit();
	put_last(left_alone_ended_at());
}

/*
 * Moves a table, and those before it, to the end of the list, so that all get
 * their turn, however many of them hang.
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

/*
 * Deletes some expired records of a table that does not rest. Returns false
 * when the round is finished. Rows that are locked are left to the next round.
 */
bool
bookkeeping_expire(void)
{
	Expiry	   *expiry = find_due();
	TableWork	work = {0};
	TimestampTz begun = clock_now();

	if (expiry == NULL)
		return expiries != NIL;
	work.from = expiry->from;
	if (!table_work_run(delete_expired, &work, expiry->endpoint, "deleting expired records"))
	{
		ereport(LOG, (errmsg("outbox: expired records cannot be deleted: %s", table_work_error())));
		strlcpy(expiry_error, table_work_error(), sizeof(expiry_error));
		work.rows = 0;
	}
	expiry->rests_until = pace_rest_after(begun);
	if (work.rows >= EXPIRY_BATCH)
		expiry->from = work.upto;
	else
		expiries = list_delete_ptr(expiries, expiry);
	pg_atomic_fetch_add_u64(&shared_mine()->records_removed, work.rows);
	return expiries != NIL;
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

/* Returns how long until bookkeeping_expire() has something to do, in a round. */
long
bookkeeping_ms_until_expiry(void)
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
bookkeeping_expiry_error(void)
{
	return expiry_error;
}

/* Leaves out ids that have been claimed again. The array of the caller stays as it is. */
static void
leave_out_reclaimed(TableWork *work)
{
	char	  **msgids = palloc(work->nmsgids * sizeof(char *));

	memcpy(msgids, work->msgids, work->nmsgids * sizeof(char *));
	work->nmsgids = reclaimed_leave_out(work->endpoint->name, msgids, work->nmsgids);
	work->msgids = msgids;
}

/*
 * Marks records that are not locked, and counts the others, which may be
 * changed or deleted by other transactions.
 */
static void
mark_records(TableWork *work)
{
	const RecordMapping *mapping = &work->endpoint->mapping;
	const char *table = record_table_name(mapping->table);
	const char *id = quote_identifier(mapping->message_id);
	const char *dispatched = quote_identifier(mapping->dispatched);
	Oid			type = work->shape.id_type == UUIDOID ? UUIDARRAYOID : TEXTARRAYOID;
	Datum		ids;
	Datum		left;

	if (work->is_repeated)
		leave_out_reclaimed(work);
	ids = make_ids(work);
	table_work_execute(work, psprintf("UPDATE ONLY %s SET %s = true, %s = clock_timestamp()%s WHERE ctid = ANY(ARRAY("
									  "SELECT ctid FROM ONLY %s WHERE %s = ANY($1) AND %s IS NOT TRUE FOR NO KEY UPDATE SKIP LOCKED))",
									  table, dispatched, quote_identifier(mapping->dispatched_at),
									  work->shape.zoned ? "" : " AT TIME ZONE 'UTC'", table, id, dispatched),
					   1, &type, &ids, 0, NULL);
	table_work_execute(work, psprintf("SELECT count(*) FROM ONLY %s WHERE %s = ANY($1) AND %s IS NOT TRUE", table, id, dispatched),
					   1, &type, &ids, 1, &left);
	work->rows = DatumGetInt64(left);
}

/* Deletes the oldest expired records that are not locked. */
static void
delete_expired(TableWork *work)
{
	const RecordMapping *mapping = &work->endpoint->mapping;
	const char *table = record_table_name(mapping->table);
	const char *at = quote_identifier(mapping->dispatched_at);
	const char *zone = work->shape.zoned ? "" : " AT TIME ZONE 'UTC'";
	TimestampTz now = GetCurrentTimestamp();
	Datum		times[2] = {TimestampTzGetDatum(work->from)};
	Datum		result[2];

	/* The retention is longer than the time since the epoch: nothing expires. */
	if (work->endpoint->retention > now - MIN_TIMESTAMP)
		return;
	times[1] = TimestampTzGetDatum(now - work->endpoint->retention);
	table_work_execute(work, psprintf("WITH gone AS (DELETE FROM ONLY %s WHERE ctid = ANY(ARRAY("
									  "SELECT ctid FROM ONLY %s WHERE %s AND %s >= $1%s AND %s < $2%s ORDER BY %s LIMIT %d FOR UPDATE SKIP LOCKED)) "
									  "RETURNING %s AS at) SELECT count(*), coalesce(max(at)%s, 'infinity') FROM gone",
									  table, table, quote_identifier(mapping->dispatched), at, zone, at, zone, at, EXPIRY_BATCH,
									  at, zone),
					   2, (Oid[]) {TIMESTAMPTZOID, TIMESTAMPTZOID}, times, 2, result);
	work->rows = DatumGetInt64(result[0]);
	work->upto = DatumGetTimestampTz(result[1]);
}

/*
 * Makes the array of ids for a statement. The endpoint may have had another
 * table, or none, when these were processed, so ids that are not UUIDs are left
 * out for a column of type uuid.
 */
static Datum
make_ids(const TableWork *work)
{
	bool		is_uuid = work->shape.id_type == UUIDOID;
	Datum	   *ids = palloc(work->nmsgids * sizeof(Datum));
	int			n = 0;

	for (int i = 0; i < work->nmsgids; i++)
	{
		if (!is_uuid)
			ids[n++] = CStringGetTextDatum(work->msgids[i]);
		else if (spells_uuid(work->msgids[i]))
			ids[n++] = DirectFunctionCall1(uuid_in, CStringGetDatum(work->msgids[i]));
	}
	return PointerGetDatum(construct_array(ids, n, work->shape.id_type,
										   is_uuid ? UUID_LEN : -1, false,
										   is_uuid ? TYPALIGN_CHAR : TYPALIGN_INT));
}

/*
 * Check whether uuid_in() accepts a text: a hyphen may follow each group of
 * four digits, and the whole may be in braces.
 */
static bool
spells_uuid(const char *text)
{
	bool		braces = *text == '{';

	text += braces;
	for (int digit = 0; digit < 2 * UUID_LEN; digit++)
	{
		if (digit > 0 && digit % 4 == 0 && *text == '-')
			text++;
		if (!isxdigit((unsigned char) *text++))
			return false;
	}
	return strcmp(text, braces ? "}" : "") == 0;
}
