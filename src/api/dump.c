/*
 * dump.c
 *		What of the log pg_dump takes: what is pending in the dump's snapshot.
 *
 * pg_dump calls these functions, for each row, in the conditions that the extension's
 * script gives it, as any role that may read all tables; so they must not change anything.
 * Whether the dump is complete is decided there, too, by outbox.dump_is_complete(); what
 * a restore does with it, in restore.c.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/snapmgr.h"

#include "src/log/window_row.h"

static Datum ended_after(FunctionCallInfo fcinfo, bool (*read_window) (Snapshot, Window *));

PG_FUNCTION_INFO_V1(outbox_is_pending);
PG_FUNCTION_INFO_V1(outbox_is_to_propagate);

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
