/*
 * deferred.c
 *		Reads outbox.deferred, and appends to it.
 *
 * Sessions read (outbox_wait(), the views), and so does the dispatcher. Only
 * the dispatcher writes the table: see bgworker/defer/deferral.c.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log_id.h"
#include "src/table/added_columns.h"
#include "src/table/index.h"
#include "src/table/moment.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

/* A gap has so many ids at most: beyond them may be many dead versions of rows. */
#define GAP_IDS			1024

/* Columns of outbox.deferred. */
enum
{
	COL_ID = 1,
	COL_KEY,
	COL_MESSAGE_ID,
	COL_DEST,
	COL_CAUSE,
	COL_AT,
	COL_HEADERS,
	COL_BODY,
	COL_LOG_SEGMENT,
	COL_STATE,
	COL_RETURNED_TX,
	COL_ATTEMPTS,
	COL_NEXT_ATTEMPT,
	COL_LAST_ERROR,
	COL_FIRST_ATTEMPT,
	COL_LAST_ATTEMPT,
	COL_LOG_TX,
	COL_PARTITION_KEY,
	COL_STREAM,
	NCOLUMNS = COL_STREAM
};

/* State of the table while rows are appended to it. */
typedef struct Appender
{
	Relation	table;			/* NULL = no rows are being appended */
	EState	   *estate;
	ResultRelInfo *indexes;
	TupleTableSlot *row;
	AddedColumns added;
	int64		last_id;		/* id of the message appended last */
} Appender;

static Appender appender;

/* Rows that an index finds for one value. */
typedef struct IndexLook
{
	Relation	table;
	Relation	index;
	TupleTableSlot *slot;
	Moment		moment;			/* rows here are updated: one for all */
	IndexScanDesc scan;
} IndexLook;

/* What the deferred messages of a record are asked. */
typedef struct RecordSearch
{
	const SnapshotValue *sent;
	const DestinationSet *left_out; /* or NULL */
	bool		waits;
	bool		is_dead;
} RecordSearch;

static const char *const state_names[] = {"scheduled", "waiting", "dead", "returned", "discarded", "held"};

static void scan_record(const pg_uuid_t *key, DeferredReader reader, void *arg);
static bool find_waiting(const Deferred *row, void *arg);
static void begin_append(void);
static void begin_look(IndexLook *look, AttrNumber column, RegProcedure compare, Datum value);
static void begin_range(IndexLook *look, AttrNumber column, ScanKey keys, int nkeys);
static bool next_deferred(IndexLook *look);
static void read_return(IndexLook *look, FullTransactionId *returned_tx);
static void end_look(IndexLook *look);
static DeferredState state_of(const char *name);

/* Reads all rows that are committed now. Locks are released at once. What the reader allocates is freed after each row. */
void
deferred_scan(DeferredReader reader, void *arg)
{
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "outbox deferred", ALLOCSET_SMALL_SIZES);
	RowScan		scan;
	bool		more = true;

	row_scan_begin_updated(&scan, relations_enter()->deferred, OWN_DEFERRED);
	while (more && row_scan_next(&scan))
	{
		MemoryContext caller = MemoryContextSwitchTo(per_row);
		Deferred	row;

		deferred_read_row(scan.row, &row);
		more = reader(&row, arg);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(per_row);
	}
	row_scan_end(&scan);
	MemoryContextDelete(per_row);
}

/*
 * Check whether a message of a record is not in Redis because it was deferred, as far as it
 * is known that what `sent` sees is there, but for destinations in `left_out` if that is not
 * NULL; *is_dead says that one has been given up, and will not be sent unless it is retried.
 */
bool
deferred_record_waits(const pg_uuid_t *key, const SnapshotValue *sent, const DestinationSet *left_out, bool *is_dead)
{
	RecordSearch search = {.sent = sent, .left_out = left_out};

	scan_record(key, find_waiting, &search);
	*is_dead = search.is_dead;
	return search.waits;
}

/* A DeferredReader. */
static bool
find_waiting(const Deferred *row, void *arg)
{
	RecordSearch *search = arg;

	switch (row->state)
	{
		case DEFERRED_DEAD:
			search->is_dead = true;
			search->waits = true;
			break;
		case DEFERRED_SCHEDULED:
		case DEFERRED_WAITING:
		case DEFERRED_HELD:
			search->waits = true;
			break;
		case DEFERRED_RETURNED:
			search->waits |= !snapshot_value_sees(search->sent, row->returned_tx) ||
				(search->left_out && destination_set_includes(search->left_out, row->message.dest));
			break;
		case DEFERRED_DISCARDED:
			break;
	}
	return !search->is_dead;
}

/* Reads the rows that belong to one record. */
static void
scan_record(const pg_uuid_t *key, DeferredReader reader, void *arg)
{
	IndexLook	look;
	Deferred	row;

	begin_look(&look, COL_KEY, F_UUID_EQ, UUIDPGetDatum(key));
	do
	{
		if (!next_deferred(&look))
			break;
		deferred_read_row(look.slot, &row);
	} while (reader(&row, arg));
	end_look(&look);
}

/*
 * Check whether there is a row for a message. Sets how often it was tried, and which row of
 * the log counts if it was returned; InvalidFullTransactionId if it was not.
 */
bool
deferred_find(int64 id, FullTransactionId *returned_tx, int *attempts)
{
	IndexLook	look;
	bool		found;

	begin_look(&look, COL_ID, F_INT8EQ, Int64GetDatum(id));
	found = next_deferred(&look);
	if (found)
	{
		bool		isnull;

		read_return(&look, returned_tx);
		*attempts = DatumGetInt32(slot_getattr(look.slot, COL_ATTEMPTS, &isnull));
	}
	end_look(&look);
	return found;
}

/*
 * The same for one message after the other, of which few have a row. `gap` is what
 * was found out by the calls before; all zero at first, and when rows have been
 * added.
 */
bool
deferred_find_next(DeferredGap *gap, int64 id, FullTransactionId *returned_tx)
{
	ScanKeyData range[2];
	IndexLook	look;
	bool		found = false;

	if (id >= gap->from && id < gap->end)
		return false;
	*gap = (DeferredGap) {.from = id, .end = Min(id, PG_INT64_MAX - GAP_IDS) + GAP_IDS};
	ScanKeyInit(&range[0], 1, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(id));
	ScanKeyInit(&range[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(gap->end));
	begin_range(&look, COL_ID, range, lengthof(range));
	if (next_deferred(&look))
	{
		bool		isnull;

		gap->end = DatumGetInt64(slot_getattr(look.slot, COL_ID, &isnull));
		found = gap->end == id;
		read_return(&look, returned_tx);
	}
	end_look(&look);
	return found;
}

/* Returns the highest id of any row; 0 if there is none. */
int64
deferred_highest_id(void)
{
	IndexLook	look;
	int64		highest = 0;

	begin_look(&look, COL_ID, F_INT8GE, Int64GetDatum(0));
	if (index_getnext_slot(look.scan, BackwardScanDirection, look.slot))
	{
		bool		isnull;

		highest = DatumGetInt64(slot_getattr(look.slot, COL_ID, &isnull));
	}
	end_look(&look);
	return highest;
}

/*
 * Appends a row, in the open transaction, and returns its id. There must be none for the
 * message; but if it has the same id as the one appended just before, which is possible
 * if rows of the log were written by hand, it gets another one. A message whose body is
 * NULL could not be read: the row names the row of the log that has it. Every message
 * for a destination that refuses it is appended here, so no statement is planned;
 * triggers, which are for rows written by SQL, do not fire. deferred_end_append() must
 * follow in the same transaction.
 */
int64
deferred_append(const Message *message, int log_segment, DeferredState state,
				int attempts, TimestampTz next_attempt, const char *error)
{
	TupleTableSlot *row;
	int64		id = message->id == appender.last_id ? log_id_next() : message->id;
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());
	pg_uuid_t	key;
	bool		has_key = message_key(message, &key);

	if (appender.table == NULL)
		begin_append();
	row = ExecClearTuple(appender.row);
	memset(row->tts_isnull, false, NCOLUMNS);
	added_columns_fill(&appender.added, row);
#define SET(col, value) (row->tts_values[(col) - 1] = (value))
#define SET_UNLESS(col, absent, value) (row->tts_isnull[(col) - 1] = (absent), SET(col, (absent) ? (Datum) 0 : (value)))
	SET(COL_ID, Int64GetDatum(id));
	SET_UNLESS(COL_KEY, !has_key, UUIDPGetDatum(&key));
	SET(COL_MESSAGE_ID, PointerGetDatum(message->message_id));
	SET(COL_DEST, PointerGetDatum(message->dest));
	SET_UNLESS(COL_CAUSE, message->cause == NULL, PointerGetDatum(message->cause));
	SET(COL_AT, TimestampTzGetDatum(message->at));
	SET_UNLESS(COL_HEADERS, message->headers == NULL, PointerGetDatum(message->headers));
	SET_UNLESS(COL_BODY, message->body == NULL, PointerGetDatum(message->body));
	SET(COL_LOG_SEGMENT, Int32GetDatum(log_segment));
	SET(COL_STATE, CStringGetTextDatum(deferred_state_name(state)));
	SET_UNLESS(COL_RETURNED_TX, true, (Datum) 0);
	SET(COL_ATTEMPTS, Int32GetDatum(attempts));
	SET(COL_NEXT_ATTEMPT, TimestampTzGetDatum(next_attempt));
	SET_UNLESS(COL_LAST_ERROR, error == NULL, CStringGetTextDatum(error));
	SET_UNLESS(COL_FIRST_ATTEMPT, error == NULL, now);
	SET_UNLESS(COL_LAST_ATTEMPT, error == NULL, now);
	SET_UNLESS(COL_LOG_TX, message->body != NULL, FullTransactionIdGetDatum(message->tx));
	SET_UNLESS(COL_PARTITION_KEY, message->partition_key == NULL, PointerGetDatum(message->partition_key));
	SET_UNLESS(COL_STREAM, message->stream == NULL, PointerGetDatum(message->stream));
#undef SET
#undef SET_UNLESS
	ExecStoreVirtualTuple(row);
	simple_table_tuple_insert(appender.table, row);
	(void) compat_insert_index_tuples(appender.indexes, row, appender.estate);
	ResetPerTupleExprContext(appender.estate);
	appender.last_id = message->id;
	return id;
}

/* Closes what deferred_append() has opened, if it was called. */
void
deferred_end_append(void)
{
	if (appender.table == NULL)
		return;
	ExecCloseIndices(appender.indexes);
	ExecDropSingleTupleTableSlot(appender.row);
	FreeExecutorState(appender.estate);
	table_close(appender.table, NoLock);
	memset(&appender, 0, sizeof(appender));

	/* Make the rows visible to the following statements. */
	CommandCounterIncrement();
}

/* Resets the state of deferred_append() after the transaction was rolled back. */
void
deferred_abort_append(void)
{
	memset(&appender, 0, sizeof(appender));
}

/* Opens the table with all its indexes, once for all rows of a transaction. */
static void
begin_append(void)
{
	appender.table = own_table_open(relations_enter()->deferred, OWN_DEFERRED, RowExclusiveLock);
	appender.estate = CreateExecutorState();
	appender.indexes = makeNode(ResultRelInfo);
	InitResultRelInfo(appender.indexes, appender.table, 1, NULL, 0);
	ExecOpenIndices(appender.indexes, false);
	appender.row = table_slot_create(appender.table, NULL);
	added_columns_prepare(&appender.added, appender.table, NCOLUMNS, appender.estate);
}

/* Begins to read the rows whose column equals a value, or is not less if `compare` says so. */
static void
begin_look(IndexLook *look, AttrNumber column, RegProcedure compare, Datum value)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, compare == F_INT8GE ? BTGreaterEqualStrategyNumber : BTEqualStrategyNumber, compare, value);
	begin_range(look, column, &key, 1);
}

/* Begins to read the rows whose column meets all conditions. */
static void
begin_range(IndexLook *look, AttrNumber column, ScanKey keys, int nkeys)
{
	look->table = own_table_open(relations_enter()->deferred, OWN_DEFERRED, AccessShareLock);
	look->index = index_open_on(look->table, column, AccessShareLock);
	look->slot = table_slot_create(look->table, NULL);
	moment_begin(&look->moment, look->table);
	look->scan = compat_index_beginscan(look->table, look->index, look->moment.scan, nkeys);
	index_rescan(look->scan, keys, nkeys, NULL, 0);
}

/* Fetches the next row that the index finds. Returns false if there is none. */
static bool
next_deferred(IndexLook *look)
{
	while (index_getnext_slot(look->scan, ForwardScanDirection, look->slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (moment_shows(&look->moment, look->slot))
			return true;
	}
	return false;
}

/* Reads which row of the log counts for the row that was fetched last, if it was returned. */
static void
read_return(IndexLook *look, FullTransactionId *returned_tx)
{
	bool		isnull;
	Datum		tx = slot_getattr(look->slot, COL_RETURNED_TX, &isnull);

	*returned_tx = isnull ? InvalidFullTransactionId : DatumGetFullTransactionId(tx);
}

/* Ends what begin_look() has begun, and releases its locks. */
static void
end_look(IndexLook *look)
{
	index_endscan(look->scan);
	moment_end(&look->moment);
	ExecDropSingleTupleTableSlot(look->slot);
	index_close(look->index, AccessShareLock);
	table_close(look->table, AccessShareLock);
}

/* Returns the name of a state in outbox.deferred. */
const char *
deferred_state_name(DeferredState state)
{
	return state_names[state];
}

/* Reads one row; values that are stored out of line are not fetched. */
void
deferred_read_row(TupleTableSlot *slot, Deferred *row)
{
	slot_getallattrs(slot);
	memset(row, 0, sizeof(*row));
#define COLUMN(col) (slot->tts_values[(col) - 1])
#define ISNULL(col) (slot->tts_isnull[(col) - 1])
	row->message.id = DatumGetInt64(COLUMN(COL_ID));
	row->message.at = DatumGetTimestampTz(COLUMN(COL_AT));
	row->message.has_key = !ISNULL(COL_KEY);
	if (row->message.has_key)
		row->message.key = *DatumGetUUIDP(COLUMN(COL_KEY));
	row->message.message_id = DatumGetTextPP(COLUMN(COL_MESSAGE_ID));
	row->message.dest = DatumGetTextPP(COLUMN(COL_DEST));
	row->message.cause = ISNULL(COL_CAUSE) ? NULL : DatumGetTextPP(COLUMN(COL_CAUSE));
	row->message.headers = ISNULL(COL_HEADERS) ? NULL : DatumGetJsonbP(COLUMN(COL_HEADERS));
	row->message.body = ISNULL(COL_BODY) ? NULL : (bytea *) DatumGetPointer(COLUMN(COL_BODY));
	row->message.partition_key = ISNULL(COL_PARTITION_KEY) ? NULL : DatumGetTextPP(COLUMN(COL_PARTITION_KEY));
	row->state = state_of(TextDatumGetCString(COLUMN(COL_STATE)));
	if (!ISNULL(COL_RETURNED_TX))
		row->returned_tx = DatumGetFullTransactionId(COLUMN(COL_RETURNED_TX));
	row->attempts = DatumGetInt32(COLUMN(COL_ATTEMPTS));
	row->next_attempt = DatumGetTimestampTz(COLUMN(COL_NEXT_ATTEMPT));
	row->last_error = ISNULL(COL_LAST_ERROR) ? NULL : DatumGetTextPP(COLUMN(COL_LAST_ERROR));
#undef COLUMN
#undef ISNULL
}

/* Finds the state with that name; the table may have been written to by hand. */
static DeferredState
state_of(const char *name)
{
	for (int i = 0; i < lengthof(state_names); i++)
	{
		if (strcmp(state_names[i], name) == 0)
			return (DeferredState) i;
	}
	elog(ERROR, "unrecognized state in outbox.deferred: \"%s\"", name);
}
