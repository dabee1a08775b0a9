/*
 * endpoint_view.c
 *		What outbox.endpoints shows.
 *
 * Reads what is committed now. Of a large custom record table it reads the
 * beginning and estimates the rest. A table that cannot be used any more is
 * skipped with a warning.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/api/record_table_attempt.h"
#include "src/claim/duplicate_count.h"
#include "src/limits.h"
#include "src/owner_privileges.h"
#include "src/record/endpoint.h"
#include "src/record/record_ring.h"
#include "src/record/record_table.h"
#include "src/ring/ring.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

/* The rows of a table with more blocks are estimated from the first ones. */
#define READ_BLOCKS	1024

/* What is remembered for an endpoint. */
typedef struct Remembered
{
	char		name[MAX_NAME_BYTES * 4 + 1];	/* of the endpoint: hash key */
	int64		in_segment;		/* records in the segment just read */
	int64		records;
	int64		size;
	TimestampTz oldest;			/* 0 = unknown */
} Remembered;

static HTAB *create_totals(void);
static Remembered *total_of(HTAB *totals, const char *name);
static void add_segment(HTAB *totals, int segment, const Segment *state);
static void add_compacted_segment(HTAB *totals, int segment, const Segment *state);
static int64 count_segment(HTAB *totals, Oid table);
static void share_segment(HTAB *totals, Oid table, int64 rows, TimestampTz since);
static void put_endpoint(ReturnSetInfo *result, const Endpoint *endpoint, HTAB *totals);
static Interval *interval_of(int64 microseconds);
static void add_table(const Endpoint *endpoint, void *arg);
static int64 count_table(Relation table);
static TimestampTz oldest_in_table(Relation table, const RecordMapping *mapping, const RecordShape *shape);

PG_FUNCTION_INFO_V1(outbox_read_endpoints);

/* outbox.read_endpoints() */
Datum
outbox_read_endpoints(PG_FUNCTION_ARGS)
{
	HTAB	   *totals = create_totals();
	List	   *endpoints = endpoint_list();
	Rings		rings;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, endpoints)
		(void) total_of(totals, ((Endpoint *) lfirst(cell))->name);

	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_RECORD].nsegments; n++)
	{
		if (segment_is_live(&rings.ring[RING_RECORD].segments[n]))
			add_segment(totals, n, &rings.ring[RING_RECORD].segments[n]);
	}
	for (int n = 0; n < rings.ring[RING_HISTORY].nsegments; n++)
	{
		if (segment_is_live(&rings.ring[RING_HISTORY].segments[n]))
			add_compacted_segment(totals, n, &rings.ring[RING_HISTORY].segments[n]);
	}
	foreach(cell, endpoints)
		put_endpoint((ReturnSetInfo *) fcinfo->resultinfo, lfirst(cell), totals);
	return (Datum) 0;
}

/* Creates the totals of all endpoints, by their names. */
static HTAB *
create_totals(void)
{
	HASHCTL		control = {
		.keysize = sizeof(((Remembered *) NULL)->name),
		.entrysize = sizeof(Remembered),
		.hcxt = CurrentMemoryContext
	};

	return hash_create("outbox endpoints", 16, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* Returns the total of an endpoint, new if it has none yet. */
static Remembered *
total_of(HTAB *totals, const char *name)
{
	bool		found;
	Remembered *total = hash_search(totals, name, HASH_ENTER, &found);

	if (!found)
		memset((char *) total + sizeof(total->name), 0, sizeof(Remembered) - sizeof(total->name));
	return total;
}

/*
 * Adds the records of a segment of the ring. They carry no time; the time to live
 * of a segment runs from when it was published, so that is how old they count as.
 */
static void
add_segment(HTAB *totals, int segment, const Segment *state)
{
	Oid			table = relations_enter()->segments[RING_RECORD][segment].table;
	int64		rows = count_segment(totals, table);

	share_segment(totals, table, rows, state->published_at != 0 ? state->published_at : state->since);
}

/* Adds the records of a segment of the history: outbox.compacted tells how many. */
static void
add_compacted_segment(HTAB *totals, int segment, const Segment *state)
{
	Oid			table = relations_enter()->segments[RING_HISTORY][segment].table;
	RowScan		scan;
	int64		rows = 0;

	/* Nobody who has read the view keeps a segment from being emptied. */
	table_close(own_table_open(table, OWN_HISTORY, AccessShareLock), AccessShareLock);
	row_scan_begin_updated(&scan, relations_enter()->compacted, OWN_COMPACTED);
	while (row_scan_next(&scan))
	{
		const Datum *values = scan.row->tts_values;

		slot_getallattrs(scan.row);
		if (DatumGetInt32(values[0]) != segment)
			continue;
		rows += DatumGetInt64(values[2]);
		if (!scan.row->tts_isnull[1])
			total_of(totals, TextDatumGetCString(values[1]))->in_segment += DatumGetInt64(values[2]);
	}
	row_scan_end(&scan);
	share_segment(totals, table, rows, state->published_at);
}

/* Counts the records of each endpoint in a segment of the ring. Returns how many there are of all. */
static int64
count_segment(HTAB *totals, Oid table)
{
	RowScan		scan;
	int64		rows = 0;

	row_scan_begin(&scan, table, OWN_RECORD);
	while (row_scan_next(&scan))
	{
		char	   *name = record_ring_endpoint(scan.row);

		rows++;
		if (name == NULL)
			continue;
		total_of(totals, name)->in_segment++;
		pfree(name);
	}
	row_scan_end(&scan);
	return rows;
}

/* Gives each endpoint its share of the size of a segment. */
static void
share_segment(HTAB *totals, Oid table, int64 rows, TimestampTz since)
{
	int64		size = DatumGetInt64(DirectFunctionCall1(pg_total_relation_size, ObjectIdGetDatum(table)));
	HASH_SEQ_STATUS scan;
	Remembered *total;

	hash_seq_init(&scan, totals);
	while ((total = hash_seq_search(&scan)) != NULL)
	{
		if (total->in_segment == 0)
			continue;
		total->records += total->in_segment;
		total->size += (int64) ((double) size * total->in_segment / rows);
		if (total->oldest == 0 || since < total->oldest)
			total->oldest = since;
		total->in_segment = 0;
	}
}

/* Adds the row of an endpoint to what outbox.endpoints shows. */
static void
put_endpoint(ReturnSetInfo *result, const Endpoint *endpoint, HTAB *totals)
{
	Remembered *total = total_of(totals, endpoint->name);
	Datum		values[8];
	bool		isnull[8] = {0};
	uint64		duplicates;

	if (OidIsValid(endpoint->mapping.table))
		record_table_attempt(add_table, endpoint, total);
	values[0] = CStringGetTextDatum(endpoint->name);
	values[1] = CStringGetTextDatum(endpoint->concurrency == CONCURRENCY_PESSIMISTIC ? "pessimistic" : "optimistic");
	values[2] = IntervalPGetDatum(interval_of(endpoint->retention));
	isnull[3] = endpoint->dedup_store == NULL;
	values[3] = IntervalPGetDatum(interval_of(endpoint->store_retention));
	values[4] = Int64GetDatum(total->records);
	isnull[5] = !duplicate_count_of(endpoint->name, &duplicates);
	values[5] = Int64GetDatum((int64) duplicates);
	isnull[6] = total->oldest == 0;
	values[6] = TimestampTzGetDatum(total->oldest);
	values[7] = Int64GetDatum(total->size);
	tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
}

/* Returns microseconds as an interval of days and time. */
static Interval *
interval_of(int64 microseconds)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->day = (int32) Min(microseconds / USECS_PER_DAY, PG_INT32_MAX);
	interval->time = microseconds % USECS_PER_DAY;
	return interval;
}

/* A RecordTableUse, which adds what the table has to a Remembered. */
static void
add_table(const Endpoint *endpoint, void *arg)
{
	Remembered *total = arg;
	const RecordMapping *mapping = &endpoint->mapping;
	RecordShape shape;
	Relation	table = record_table_open(endpoint->name, mapping, AccessShareLock, &shape);
	TimestampTz oldest = oldest_in_table(table, mapping, &shape);

	total->records += count_table(table);
	total->size += DatumGetInt64(DirectFunctionCall1(pg_total_relation_size, ObjectIdGetDatum(mapping->table)));
	if (oldest != 0 && (total->oldest == 0 || oldest < total->oldest))
		total->oldest = oldest;
	table_close(table, AccessShareLock);
}

/* Counts the records in a custom record table; see READ_BLOCKS. */
static int64
count_table(Relation table)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(table);
	TupleTableSlot *row = table_slot_create(table, NULL);
	TableScanDesc scan = table_beginscan_strat(table, SnapshotSelf, 0, NULL, true, false);
	int64		rows = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, row) &&
		   ItemPointerGetBlockNumber(&row->tts_tid) < READ_BLOCKS)
	{
		CHECK_FOR_INTERRUPTS();
		rows++;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	return blocks > READ_BLOCKS ? rows * blocks / READ_BLOCKS : rows;
}

/* Returns when the oldest record that is still there was marked; 0 = there is none. */
static TimestampTz
oldest_in_table(Relation table, const RecordMapping *mapping, const RecordShape *shape)
{
	char	   *sql = psprintf("SELECT min(%s)%s FROM ONLY %s WHERE %s",
							   quote_identifier(mapping->dispatched_at),
							   shape->zoned ? "" : " AT TIME ZONE 'UTC'",
							   record_table_name(mapping->table), quote_identifier(mapping->dispatched));
	TimestampTz oldest = 0;
	OwnerPrivileges before;
	bool		isnull;
	Datum		value;

	owner_privileges_take(&before, shape->owner);
	SPI_connect();
	if (SPI_execute(sql, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
		oldest = DatumGetTimestampTz(value);
	SPI_finish();
	owner_privileges_return(&before);
	return oldest;
}
