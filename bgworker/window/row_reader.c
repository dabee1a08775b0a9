/*
 * row_reader.c
 *		Fetches rows of the log from their places.
 *
 * Called by page.c, forbidden.c and receipts.c, which keep the places of rows
 * (sorted_rows.c) for longer than a transaction. A row of the log that is
 * committed never changes, so any snapshot will do. But VACUUM FULL moves rows,
 * and may leave a table so small that the block of a place is no longer there.
 *
 * A table is opened when the first of its rows is fetched. All are closed
 * together, before the transaction ends. Rows are fetched as by an index scan,
 * which pins a page once for all rows that are fetched from it in turn.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "bgworker/window/row_reader.h"
#include "src/log/log.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

static void open_log_table(RowReader *reader, int segment);

/*
 * Returns the row at that place, valid until the next one of its segment is
 * fetched; NULL if it is no longer there.
 */
TupleTableSlot *
row_reader_fetch(RowReader *reader, const LogRow *place)
{
	TupleTableSlot *row;
	ItemPointerData tid = place->tid;
	bool		call_again = false;

	open_log_table(reader, place->segment);
	if (ItemPointerGetBlockNumber(&tid) >= reader->blocks[place->segment])
		return NULL;
	row = reader->rows[place->segment];

	/* An index scan does not find what a superuser's UPDATE has left there. */
	if (!table_index_fetch_tuple(reader->fetches[place->segment], &tid, SnapshotAny, row, &call_again, NULL) &&
		!table_tuple_fetch_row_version(reader->tables[place->segment], &tid, SnapshotAny, row))
		return NULL;
	slot_getallattrs(row);		/* at once: the caller reads most of them */
	return log_row_id(row) == place->id ? row : NULL;
}

/*
 * Fetches a message that must be there. If it is not, because the table was rewritten
 * (VACUUM FULL), the error ends this process: no message is blamed for it, and the
 * next dispatcher collects the rows again.
 */
TupleTableSlot *
row_reader_fetch_message(RowReader *reader, const LogRow *place)
{
	TupleTableSlot *found = row_reader_fetch(reader, place);

	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg_internal("message %lld is no longer at its place in log segment %d", (long long) place->id, place->segment)));
	return found;
}

/* Closes all tables. After an ERROR, the end of the transaction does so. */
void
row_reader_close(RowReader *reader)
{
	for (int n = 0; n < MAX_SEGMENTS; n++)
	{
		if (reader->tables[n])
		{
			ExecDropSingleTupleTableSlot(reader->rows[n]);
			table_index_fetch_end(reader->fetches[n]);
			table_close(reader->tables[n], AccessShareLock);
		}
	}
}

/* Opens the table of a log segment on first use. Nothing can rewrite it from then on. */
static void
open_log_table(RowReader *reader, int segment)
{
	if (reader->tables[segment])
		return;
	reader->tables[segment] = own_table_open(relations_enter()->segments[RING_LOG][segment].table, OWN_LOG, AccessShareLock);
	reader->blocks[segment] = RelationGetNumberOfBlocks(reader->tables[segment]);
	reader->fetches[segment] = table_index_fetch_begin(reader->tables[segment]);
	reader->rows[segment] = table_slot_create(reader->tables[segment], NULL);
}
