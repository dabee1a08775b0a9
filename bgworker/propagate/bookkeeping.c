/*
 * bookkeeping.c
 *		Keeps the records in custom record tables: marks them as dispatched,
 *		and deletes them when they have expired.
 *
 * Called by bookkeeper.c and marking.c. These tables have what ours do not:
 * rows that others lock, triggers that fail, owners who alter them. So nothing
 * here waits for a lock, statements have a time limit, they run with the rights
 * of the table's owner (owner.c), and an error ends this one transaction and
 * not the process: whoever calls tries again later. A trigger may catch what
 * should end it: so while user's code may run that stands in shared memory, and
 * the dispatcher ends this process if it takes too long (supervision.c).
 *
 * All of it may be done twice, so its commits need not be flushed: whatever
 * relies on them is flushed after them.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "bgworker/propagate/bookkeeping.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/record/endpoint.h"
#include "src/record/owner.h"
#include "src/record/record_table.h"
#include "src/shared.h"

/* How many records one statement deletes. */
#define EXPIRY_BATCH	1000

/* How long a statement may take, and wait for locks of what it sets off. */
#define STATEMENT_MS	10000
#define LOCK_WAIT		"1s"

/* An endpoint whose expired records are being deleted. */
typedef struct Expiry
{
	char	   *endpoint;
	Oid			table;
	TimestampTz from;			/* what was dispatched before is dealt with */
} Expiry;

/* One statement on one table, and its result. */
typedef struct Work
{
	const Endpoint *endpoint;
	Relation	table;
	bool		is_locked;		/* by somebody, so nothing was done */
	RecordShape shape;
	char	  **msgids;			/* to be marked */
	int			nmsgids;
	TimestampTz from;			/* to be deleted: dispatched since then */
	int64		rows;			/* deleted, or left unmarked */
	TimestampTz upto;			/* the newest deleted */
} Work;

typedef void (*WorkFunction) (Work *work);

static MemoryContext context;	/* of the round of expiry */
static List *expiries;				/* of Expiry */
static char error_text[256];
static char expiry_error[256];	/* of this round, or the last one */

static void put_last(Oid table);
static bool attempt(WorkFunction function, Work *work, const char *endpoint, const char *activity);
static const Endpoint *find_endpoint(const char *name);
static bool open_table(Work *work);
static void note_error(const char *endpoint);
static void mark(Work *work);
static void delete_expired(Work *work);
static void execute(const Work *work, const char *sql, int nargs, Oid *types, Datum *values, int ncolumns, Datum *result);
static void begin_time_limit(Oid table);
static void note_busy(Oid table);
static void refuse_left_alone(Oid table);
static void look_after_again(Datum arg, Oid table);
static void end_time_limit(void);
static Datum make_ids(const Work *work);
static bool spells_uuid(const char *text);

/*
 * Marks the records of these messages as dispatched; records that are not there
 * or marked already are none of its business.
 */
Marking
bookkeeping_mark(const char *endpoint, char **msgids, int n)
{
	Work		work = {.msgids = msgids, .nmsgids = n};

	if (!attempt(mark, &work, endpoint, "marking records"))
		return MARKING_FAILED;
	return work.is_locked || work.rows > 0 ? MARKING_INCOMPLETE : MARKING_DONE;
}

/* Prepares for use; once, when the bookkeeper starts. */
void
bookkeeping_init(void)
{
	CacheRegisterRelcacheCallback(look_after_again, (Datum) 0);
}

/* Whoever alters a table, or drops a trigger of it, may have mended it. */
static void
look_after_again(Datum arg, Oid table)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < LEFT_ALONE; i++)
	{
		if (shared->books.left_alone[i].table == table || !OidIsValid(table))
			shared->books.left_alone[i].until = 0;
	}
	LWLockRelease(shared->lock);
}

/* The table at which a predecessor was ended, for a statement there did not end. */
Oid
bookkeeping_ended_at(void)
{
	Oid			table;

	LWLockAcquire(shared_mine()->lock, LW_SHARED);
	table = shared_mine()->books.ended_at;
	LWLockRelease(shared_mine()->lock);
	return table;
}

/* Begins a round of expiry: all endpoints that have such tables. */
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
	put_last(bookkeeping_ended_at());
}

/* Puts a table at the end, with those before it: all get their turn, however many of them hang. */
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
 * Deletes some expired records; false when the round is at its end. Rows that
 * somebody has locked are left to the next round.
 */
bool
bookkeeping_expire(void)
{
	Expiry	   *expiry;
	Work		work = {0};

	if (expiries == NIL)
		return false;
	expiry = linitial(expiries);
	work.from = expiry->from;
	if (!attempt(delete_expired, &work, expiry->endpoint, "deleting expired records"))
	{
		ereport(LOG, (errmsg("outbox: could not delete expired %s", error_text)));
		strlcpy(expiry_error, error_text, sizeof(expiry_error));
		work.rows = 0;
	}
	if (work.rows >= EXPIRY_BATCH)
		expiry->from = work.upto;
	else
		expiries = list_delete_first(expiries);
	pg_atomic_fetch_add_u64(&shared_mine()->records_removed, work.rows);
	return expiries != NIL;
}

/* What went wrong in the last round of expiry; "" = nothing. */
const char *
bookkeeping_expiry_error(void)
{
	return expiry_error;
}

/* What went wrong when records were marked last. */
const char *
bookkeeping_error(void)
{
	return error_text;
}

/*
 * Does something with the table of an endpoint in a transaction of its own. If
 * that fails it says why in error_text and returns false. An endpoint that has
 * no such table any more is no failure.
 */
static bool
attempt(WorkFunction function, Work *work, const char *endpoint, const char *activity)
{
	volatile bool done = true;

	if (!transaction_begin(activity))
	{
		error_text[0] = '\0';
		return false;
	}
	PG_TRY();
	{
		work->endpoint = find_endpoint(endpoint);
		if (work->endpoint)
		{
			refuse_left_alone(work->endpoint->mapping.table);
			begin_time_limit(work->endpoint->mapping.table);
			if (open_table(work))
			{
				record_table_owner_code_begins();
				KILL_POINT("before_owner_code");
				function(work);
				record_table_owner_code_ended();
				table_close(work->table, NoLock);
			}
			end_time_limit();
		}
		transaction_commit_async();
	}
	PG_CATCH();
	{
		record_table_owner_code_ended();
		end_time_limit();
		note_error(endpoint);
		transaction_abort();
		done = false;
	}
	PG_END_TRY();
	return done;
}

/* The endpoint, if it keeps its records in a table that exists; else NULL. */
static const Endpoint *
find_endpoint(const char *name)
{
	ListCell   *cell;

	foreach(cell, endpoint_list())
	{
		Endpoint   *endpoint = lfirst(cell);

		if (strcmp(endpoint->name, name) == 0 && get_rel_relkind(endpoint->mapping.table) != '\0')
			return endpoint;
	}
	return NULL;
}

/* False if somebody has locked the table. */
static bool
open_table(Work *work)
{
	work->is_locked = !ConditionalLockRelationOid(work->endpoint->mapping.table, RowExclusiveLock);
	if (work->is_locked)
		return false;
	work->table = record_table_open(work->endpoint->name, &work->endpoint->mapping, NoLock, &work->shape);
	return true;
}

/* Called where an error was caught, with the transaction still to be aborted. */
static void
note_error(const char *endpoint)
{
	ErrorData  *error;

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	FlushErrorState();
	snprintf(error_text, sizeof(error_text), "records of endpoint \"%s\": %s%s%s", endpoint, error->message,
			 error->detail ? "; " : "", error->detail ? error->detail : "");

	/* Where it was cut there may be half a character. */
	error_text[pg_mbcliplen(error_text, strlen(error_text), strlen(error_text))] = '\0';
	FreeErrorData(error);
}

/*
 * Marks what is not locked, and counts what is left. What others have locked
 * they may be changing or deleting.
 */
static void
mark(Work *work)
{
	const RecordMapping *mapping = &work->endpoint->mapping;
	const char *table = record_table_name(mapping->table);
	const char *id = quote_identifier(mapping->message_id);
	const char *dispatched = quote_identifier(mapping->dispatched);
	Oid			type = work->shape.id_type == UUIDOID ? UUIDARRAYOID : TEXTARRAYOID;
	Datum		ids = make_ids(work);
	Datum		left;

	execute(work, psprintf("UPDATE ONLY %s SET %s = true, %s = clock_timestamp()%s WHERE ctid = ANY(ARRAY("
						   "SELECT ctid FROM ONLY %s WHERE %s = ANY($1) AND %s IS NOT TRUE FOR NO KEY UPDATE SKIP LOCKED))",
						   table, dispatched, quote_identifier(mapping->dispatched_at),
						   work->shape.zoned ? "" : " AT TIME ZONE 'UTC'", table, id, dispatched),
			1, &type, &ids, 0, NULL);
	execute(work, psprintf("SELECT count(*) FROM ONLY %s WHERE %s = ANY($1) AND %s IS NOT TRUE", table, id, dispatched),
			1, &type, &ids, 1, &left);
	work->rows = DatumGetInt64(left);
}

/* Deletes the oldest that have expired and nobody has locked. */
static void
delete_expired(Work *work)
{
	const RecordMapping *mapping = &work->endpoint->mapping;
	const char *table = record_table_name(mapping->table);
	const char *at = quote_identifier(mapping->dispatched_at);
	const char *zone = work->shape.zoned ? "" : " AT TIME ZONE 'UTC'";
	TimestampTz now = GetCurrentTimestamp();
	Datum		times[2] = {TimestampTzGetDatum(work->from)};
	Datum		result[2];

	/* Nothing is that old. */
	if (work->endpoint->retention > now - MIN_TIMESTAMP)
		return;
	times[1] = TimestampTzGetDatum(now - work->endpoint->retention);
	execute(work, psprintf("WITH gone AS (DELETE FROM ONLY %s WHERE ctid = ANY(ARRAY("
						   "SELECT ctid FROM ONLY %s WHERE %s AND %s >= $1%s AND %s < $2%s ORDER BY %s LIMIT %d FOR UPDATE SKIP LOCKED)) "
						   "RETURNING %s AS at) SELECT count(*), coalesce(max(at)%s, 'infinity') FROM gone",
						   table, table, quote_identifier(mapping->dispatched), at, zone, at, zone, at, EXPIRY_BATCH,
						   at, zone),
			2, (Oid[]) {TIMESTAMPTZOID, TIMESTAMPTZOID}, times, 2, result);
	work->rows = DatumGetInt64(result[0]);
	work->upto = DatumGetTimestampTz(result[1]);
}

/*
 * Runs a statement with the rights of the table's owner; *result is its first
 * row, whose columns are passed by value and not NULL.
 */
static void
execute(const Work *work, const char *sql, int nargs, Oid *types, Datum *values, int ncolumns, Datum *result)
{
	OwnerRights before;
	bool		isnull;
	int			code;

	owner_rights_take(&before, work->shape.owner);
	(void) set_config_option("lock_timeout", LOCK_WAIT,
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	code = SPI_execute_with_args(sql, nargs, types, values, NULL, false, 0);
	if (code < 0)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(code));
	for (int i = 0; i < ncolumns; i++)
		result[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull);
	SPI_finish();
	owner_rights_return(&before);
}

/*
 * Triggers are the owner's, and may wait for anything. The limits work by the
 * signal that cancels a statement, which dispatchers ignore elsewhere.
 */
static void
begin_time_limit(Oid table)
{
	note_busy(table);
	pqsignal(SIGINT, StatementCancelHandler);
	enable_timeout_after(STATEMENT_TIMEOUT, STATEMENT_MS);
}

static void
end_time_limit(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	pqsignal(SIGINT, SIG_IGN);
	QueryCancelPending = false;
	note_busy(InvalidOid);
}

/* Tells the dispatcher that code of this table's owner may run; InvalidOid = not any more. */
static void
note_busy(Oid table)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->books.busy_with = table;
	shared->books.busy_since = clock_now();
	LWLockRelease(shared->lock);
}

/* Raises an error if a statement on this table did not end a while ago. */
static void
refuse_left_alone(Oid table)
{
	DatabaseShared *shared = shared_mine();
	TimestampTz until = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < LEFT_ALONE; i++)
	{
		if (shared->books.left_alone[i].table == table)
			until = Max(until, shared->books.left_alone[i].until);
	}
	LWLockRelease(shared->lock);
	if (until > clock_now())
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("a statement on the table did not end"),
				 errdetail("A trigger hangs; the table is left alone for %d s", LEFT_ALONE_S)));
}

/*
 * The endpoint may have had another table, or none, when these were processed. So what is no
 * uuid cannot be in a column of uuids, and is none of its business.
 */
static Datum
make_ids(const Work *work)
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

/* Whether uuid_in() takes it: a hyphen may follow each group of four digits, and braces be around all. */
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
