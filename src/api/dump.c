/*
 * dump.c
 *		What of the log pg_dump takes, and whether a dump is complete.
 *
 * pg_dump calls these functions, for each row, in the conditions that the extension's
 * script gives it, as any role that may read all tables; so they must not change anything.
 * It takes what is pending in its snapshot. What a restore does with it is in restore.c.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "utils/snapmgr.h"

#include "src/log/window_row.h"

static Datum ended_after(FunctionCallInfo fcinfo, bool (*read_window) (Snapshot, Window *));

PG_FUNCTION_INFO_V1(outbox_dump_is_complete);
PG_FUNCTION_INFO_V1(outbox_is_pending);
PG_FUNCTION_INFO_V1(outbox_is_to_propagate);

/*
 * A row for each table that the snapshot sees in use and that was emptied since, so that it
 * has another file. Rows that all would have expired by now are not missed.
 */
#define EMPTIED \
	"SELECT FROM outbox.ring r JOIN pg_class c ON c.oid = format('outbox.%s_%s', r.ring, r.segment)::regclass " \
	"WHERE r.state IN ('current', 'sealed', 'quiet') AND c.relfilenode <> pg_relation_filenode(c.oid) " \
	"AND (r.published_at IS NULL OR r.ring <> 'log' AND r.published_at > clock_timestamp() - " \
	"(SELECT greatest(current_setting('outbox.retention')::interval, max(e.retention), " \
	"CASE WHEN count(e.dedup_store) > 0 THEN current_setting('outbox.replay_window')::interval END) FROM outbox.endpoint e))"

/*
 * outbox.dump_is_complete(): raises an error if tables were emptied after the dump's snapshot
 * was taken and before its locks were. Then records would be missing, or messages that were
 * deferred meanwhile. Called once for a statement, with its snapshot.
 */
Datum
outbox_dump_is_complete(PG_FUNCTION_ARGS)
{
	SPI_connect();
	if (SPI_execute(EMPTIED, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look for tables that were emptied");
	if (SPI_processed > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tables of the outbox were emptied after the snapshot and before the locks of this dump"),
				 errhint("Dump again, with a new snapshot.")));
	SPI_finish();
	PG_RETURN_BOOL(true);
}

/*
 * outbox.is_pending(tx): check whether the messages of a transaction are not yet
 * known to be in Redis, as the caller's snapshot shows it. A message that was
 * deferred after that snapshot must be pending, because it is not yet among the
 * deferred ones. Reads the position once per statement.
 */
Datum
outbox_is_pending(PG_FUNCTION_ARGS)
{
	return ended_after(fcinfo, window_row_published_in);
}

/* outbox.is_to_propagate(tx): the same for the receipts of a transaction. */
Datum
outbox_is_to_propagate(PG_FUNCTION_ARGS)
{
	return ended_after(fcinfo, window_row_propagated_in);
}

/* Check whether a transaction had not ended when the window ended that was read. */
static Datum
ended_after(FunctionCallInfo fcinfo, bool (*read_window) (Snapshot, Window *))
{
	Window	   *window = fcinfo->flinfo->fn_extra;

	/* STRICT is up to the owner of the function. */
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (window == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		window = palloc0(sizeof(Window));
		if (!read_window(GetActiveSnapshot(), window))
			window->snapshot = NULL;
		MemoryContextSwitchTo(caller);
		fcinfo->flinfo->fn_extra = window;
	}
	PG_RETURN_BOOL(window->snapshot == NULL ||
				   !snapshot_value_sees(window->snapshot,
										DatumGetFullTransactionId(PG_GETARG_DATUM(0))));
}
