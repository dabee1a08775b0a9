/*
 * stream_mapping.c
 *		To which stream the messages of a destination go, by the window that they are in.
 *
 * Called by redis_session.c and route.c. Each lane of a Redis Cluster
 * has a fence of its own. If a node has lost messages, their windows are read again, and
 * each message must go to the lane that it was sent in: another one may have passed
 * its window, and would leave it out. So when an administrator gives a destination
 * another stream, or other partitions, the former ones hold for all windows of which
 * messages may have been sent, and outbox.mapping says so as long as these are kept.
 * In a single Redis there is one lane, and the stream of the moment will do.
 *
 *	 died before the note		the next connection notes the change, for later windows
 *	 after it					the table says what was sent where
 *
 * Nothing is sent by a mapping that is not noted: route.c asks what was read from the
 * table. The rows are about this instance and are not dumped; a restored database
 * has none of their windows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/lane/stream_mapping.h"
#include "bgworker/lane/used_lanes.h"
#include "bgworker/process/transaction.h"
#include "src/kill_point.h"
#include "src/log/window_row.h"
#include "src/redis_cluster/hash_slot.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

typedef struct MappedDestination
{
	char		dest[MAX_NAME_BYTES + 1];	/* hash key */
	StreamMapping *newest;
} MappedDestination;

/* What all destinations have now, as arrays for a statement. */
typedef struct Current
{
	ArrayBuildState *dests;
	ArrayBuildState *streams;
	ArrayBuildState *partitions;
} Current;

static bool is_kept;
static MemoryContext context;
static HTAB *mapped;
static uint64 noted;			/* change of the settings that is noted */

static void load_row(HeapTuple row, TupleDesc columns);
static void add_current(const Destination *destination, void *arg);
static void write_changes(int64 after_window);

/* Begins a connection; `kept` tells whether it matters by which mapping a message was sent. */
void
stream_mapping_begin(bool kept)
{
	is_kept = kept;
	noted = 0;
}

/* Check whether stream_mapping_find() is to be asked. */
bool
stream_mapping_is_kept(void)
{
	return is_kept;
}

/* Reads the table, with what this transaction has written. Needs an open transaction. */
void
stream_mapping_load(void)
{
	if (context)
		MemoryContextDelete(context);
	context = AllocSetContextCreate(TopMemoryContext, "outbox mapping", ALLOCSET_SMALL_SIZES);
	mapped = destination_make_table("outbox mapping", context, sizeof(MappedDestination));
	own_table_require(relations_enter()->mapping, OWN_MAPPING);
	SPI_connect();
	(void) transaction_query("SELECT dest, after_window, stream, partitions FROM outbox.mapping ORDER BY after_window", 0, NULL, NULL, NULL);
	own_rows_require(ROWS_MAPPING);
	for (uint64 i = 0; i < SPI_processed; i++)
		load_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_finish();
}

/* Returns where messages in a window go; NULL: to the stream that has the name of the destination. */
const StreamMapping *
stream_mapping_find(const text *dest, int64 window)
{
	MappedDestination *destination = destination_look_up(mapped, dest);
	const StreamMapping *mapping = destination ? destination->newest : NULL;

	while (mapping && mapping->after_window >= window)
		mapping = mapping->former;
	return mapping;
}

/*
 * Check whether messages of a destination go elsewhere by now than those in a window, and
 * all in that window have certainly been sent: it is published, or Redis was told of
 * partitions since, which waits until all before is sent. What is sent of it now was lost.
 */
bool
stream_mapping_is_over(const text *dest, int64 window, int64 published)
{
	const MappedDestination *destination = destination_look_up(mapped, dest);
	const StreamMapping *mapping = destination ? destination->newest : NULL;
	bool		is_former = false;
	bool		is_sent = window <= published;

	for (; mapping && mapping->after_window >= window; mapping = mapping->former)
	{
		is_former = true;
		is_sent |= mapping->partitions > 0;
	}
	return is_former && (is_sent || (mapping && mapping->partitions > 0));
}

/*
 * Writes to disk what has changed since the last call, or since another process noted
 * it. It holds for the windows behind the last one of which a message may have been
 * sent; before anything was sent to a cluster, for all. Nothing may be under
 * way. Returns false if the extension is being dropped.
 */
bool
stream_mapping_note(int64 touched)
{
	if (!is_kept || noted == destination_changes())
		return true;
	if (!transaction_begin("noting the streams of destinations"))
		return false;
	write_changes(used_lanes_next(0) == HASH_SLOTS ? 0 : touched);
	stream_mapping_load();
	transaction_commit();
	noted = destination_changes();
	KILL_POINT("lane_mapping_noted");
	return true;
}

/* Adds a row of the table, which is newer than those before. */
static void
load_row(HeapTuple row, TupleDesc columns)
{
	MappedDestination *destination;
	StreamMapping *mapping = MemoryContextAlloc(context, sizeof(StreamMapping));
	MemoryContext caller = MemoryContextSwitchTo(context);
	bool		found;
	bool		isnull;
	Datum		stream;

	mapping->after_window = DatumGetInt64(SPI_getbinval(row, columns, 2, &isnull));
	mapping->partitions = DatumGetInt32(SPI_getbinval(row, columns, 4, &isnull));
	stream = SPI_getbinval(row, columns, 3, &isnull);
	mapping->stream = isnull ? NULL : DatumGetTextPCopy(stream);
	MemoryContextSwitchTo(caller);
	destination = hash_search(mapped, SPI_getvalue(row, columns, 1), HASH_ENTER, &found);
	mapping->former = found ? destination->newest : NULL;
	destination->newest = mapping;
}

/* Adds what a destination has now. As long as Redis is not told of its partitions it keeps what was noted, if anything. */
static void
add_current(const Destination *destination, void *arg)
{
	Current    *current = arg;
	const MappedDestination *before = destination->is_settled ? NULL : hash_search(mapped, destination->dest, HASH_FIND, NULL);
	const text *stream = before ? before->newest->stream : destination->stream;
	int			partitions = before ? before->newest->partitions : destination->partitions;

	current->dests = accumArrayResult(current->dests, CStringGetTextDatum(destination->dest), false, TEXTOID, CurrentMemoryContext);
	current->streams = accumArrayResult(current->streams, PointerGetDatum(stream), stream == NULL, TEXTOID, CurrentMemoryContext);
	current->partitions = accumArrayResult(current->partitions, Int32GetDatum(partitions), false, INT4OID, CurrentMemoryContext);
}

/* Writes what is not as the table has it, and removes what no kept window needs. */
static void
write_changes(int64 after_window)
{
	Current		current = {
		.dests = initArrayResult(TEXTOID, CurrentMemoryContext, true),
		.streams = initArrayResult(TEXTOID, CurrentMemoryContext, true),
		.partitions = initArrayResult(INT4OID, CurrentMemoryContext, true)
	};

	destination_each(add_current, &current);
	(void) transaction_execute("INSERT INTO outbox.mapping AS m "
							   "SELECT coalesce(n.dest, o.dest), $4, n.stream, coalesce(n.partitions, 0) "
							   "FROM unnest($1, $2, $3) n (dest, stream, partitions) FULL JOIN "
							   "(SELECT DISTINCT ON (dest) * FROM outbox.mapping ORDER BY dest, after_window DESC) o ON o.dest = n.dest "
							   "WHERE n.stream IS DISTINCT FROM o.stream OR coalesce(n.partitions, 0) <> coalesce(o.partitions, 0) "
							   "ON CONFLICT (dest, after_window) DO UPDATE SET stream = excluded.stream, partitions = excluded.partitions",
							   4, (Oid[]) {TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT8OID},
							   (Datum[]) {makeArrayResult(current.dests, CurrentMemoryContext), makeArrayResult(current.streams, CurrentMemoryContext),
										  makeArrayResult(current.partitions, CurrentMemoryContext), Int64GetDatum(after_window)}, NULL);
	(void) transaction_execute("DELETE FROM outbox.mapping m USING outbox.mapping n "
							   "WHERE n.dest = m.dest AND n.after_window > m.after_window AND n.after_window < $1",
							   1, (Oid[]) {INT8OID}, (Datum[]) {Int64GetDatum(window_row_oldest_number())}, NULL);
}
