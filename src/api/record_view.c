/*
 * record_view.c
 *		What outbox.records shows: the records in the ring, and in custom record tables.
 *
 * Reads what is committed now, and holds no lock when it returns. Of compacted records
 * nothing is left that could be shown. A custom record table may have many millions of rows:
 * what is made for a row is freed before the next one.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

#include "src/api/record_table_attempt.h"
#include "src/compat.h"
#include "src/record/endpoint.h"
#include "src/record/forgotten.h"
#include "src/record/record_ring.h"
#include "src/record/record_table.h"
#include "src/ring/ring.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

static void show_segment(ReturnSetInfo *result, int segment, const Segment *state);
static void show_table(const Endpoint *endpoint, void *arg);

PG_FUNCTION_INFO_V1(outbox_read_records);

/* outbox.read_records() */
Datum
outbox_read_records(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Rings		rings;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_RECORD].nsegments; n++)
	{
		if (segment_is_live(&rings.ring[RING_RECORD].segments[n]))
			show_segment(result, n, &rings.ring[RING_RECORD].segments[n]);
	}
	foreach(cell, endpoint_list())
	{
		const Endpoint *endpoint = lfirst(cell);

		if (OidIsValid(endpoint->mapping.table))
			record_table_attempt(show_table, endpoint, result);
	}
	return (Datum) 0;
}

/* Adds the records of a segment of the ring to what outbox.records shows, except forgotten ones. */
static void
show_segment(ReturnSetInfo *result, int segment, const Segment *state)
{
	Datum		state_name = CStringGetTextDatum(segment_state_name(state->state));
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "outbox records", ALLOCSET_SMALL_SIZES);
	MemoryContext caller;
	RowScan		scan;

	row_scan_begin(&scan, relations_enter()->segments[RING_RECORD][segment].table, OWN_RECORD);
	caller = MemoryContextSwitchTo(per_row);
	while (row_scan_next(&scan))
	{
		TupleTableSlot *row = scan.row;
		Datum		values[5];
		bool		isnull[5] = {0};
		TransactionId in_progress;
		char	   *endpoint;

		MemoryContextReset(per_row);
		slot_getallattrs(row);
		if (forgotten_look(DatumGetUUIDP(row->tts_values[0]), &in_progress) == FORGOTTEN_YES)
			continue;
		endpoint = record_ring_endpoint(row);
		isnull[0] = endpoint == NULL;
		isnull[1] = row->tts_isnull[3];
		values[0] = endpoint ? CStringGetTextDatum(endpoint) : (Datum) 0;
		values[1] = row->tts_values[3];
		values[2] = row->tts_values[1];
		values[3] = Int32GetDatum(segment);
		values[4] = state_name;
		tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(per_row);
	row_scan_end(&scan);
}

/* A RecordTableUse, which adds the records of the table to what outbox.records shows. */
static void
show_table(const Endpoint *endpoint, void *arg)
{
	ReturnSetInfo *result = arg;
	RecordShape shape;
	Relation	table = record_table_open(endpoint->name, &endpoint->mapping, AccessShareLock, &shape);
	TupleTableSlot *row = table_slot_create(table, NULL);
	TableScanDesc scan = table_beginscan(table, SnapshotSelf, 0, NULL);
	Datum		name = CStringGetTextDatum(endpoint->name);
	Datum		states[] = {CStringGetTextDatum("not dispatched"), CStringGetTextDatum("dispatched")};
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext, "outbox records", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(per_row);

	while (table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		Datum		values[5] = {name};
		bool		isnull[5] = {false, false, true, true, false};
		Datum		id = slot_getattr(row, shape.message_id, &isnull[1]);
		bool		unmarked;
		bool		dispatched = DatumGetBool(slot_getattr(row, shape.dispatched, &unmarked)) && !unmarked;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(per_row);
		if (!isnull[1])
			values[1] = shape.id_type == UUIDOID ?
				CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(uuid_out, id))) : id;
		values[4] = states[dispatched];
		tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(per_row);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	table_close(table, AccessShareLock);
}
