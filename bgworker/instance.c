/*
 * instance.c
 *		Who this outbox is, and whether its database is a copy.
 *
 * Called when a dispatcher starts. CREATE DATABASE ... TEMPLATE copies the row
 * of outbox.instance along with everything else; the oid in it tells. A copy
 * whose original is alive gets an id of its own and sends nothing that the
 * original will send. If the original is gone, the copy goes on in its place.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "bgworker/instance.h"
#include "bgworker/transaction.h"

static void read_row(pg_uuid_t *id, bool *is_ours, bool *original_lives);

/*
 * Reads the id, making a new one for a copy; *is_copy says that this happened,
 * and it is not committed then: the caller's transaction is the one in which
 * it sees to it that nothing old is sent. Needs an open transaction.
 */
bool
instance_load(pg_uuid_t *id, bool *is_copy)
{
	bool		is_ours;
	bool		original_lives;

	read_row(id, &is_ours, &original_lives);
	*is_copy = !is_ours && original_lives;
	if (is_ours)
		return true;

	(void) transaction_execute(original_lives ?
							   "UPDATE outbox.instance SET id = gen_random_uuid(), database = $1" :
							   "UPDATE outbox.instance SET database = $1",
							   1, (Oid[]) {OIDOID}, (Datum[]) {ObjectIdGetDatum(MyDatabaseId)}, NULL);
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
	read_row(id, &is_ours, &original_lives);
	return is_ours;
}

static void
read_row(pg_uuid_t *id, bool *is_ours, bool *original_lives)
{
	bool		isnull;
	HeapTuple	row;
	TupleDesc	columns;

	SPI_connect();
	if (SPI_execute("SELECT id, database, EXISTS (SELECT FROM pg_database d WHERE d.oid = i.database) "
					"FROM outbox.instance i", true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "outbox.instance is empty");
	row = SPI_tuptable->vals[0];
	columns = SPI_tuptable->tupdesc;
	*id = *DatumGetUUIDP(SPI_getbinval(row, columns, 1, &isnull));
	*is_ours = DatumGetObjectId(SPI_getbinval(row, columns, 2, &isnull)) == MyDatabaseId;
	*original_lives = DatumGetBool(SPI_getbinval(row, columns, 3, &isnull));
	SPI_finish();
}
