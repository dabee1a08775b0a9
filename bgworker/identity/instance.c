/*
 * instance.c
 *		Which instance this database is, and whether it is a copy of another.
 *
 * Called when a dispatcher starts. CREATE DATABASE ... TEMPLATE copies the row
 * of outbox.instance with everything else; the OID in it shows that. A copy
 * whose original exists gets an id of its own and sends nothing that the
 * original will send. If the original is gone, the copy takes its place, unless
 * another copy was first (database_heir.c).
 *
 * Each message names the database that it was enqueued in, by which
 * copied_messages.c finds those of the original.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "bgworker/identity/database_heir.h"
#include "bgworker/identity/instance.h"
#include "bgworker/process/transaction.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/*
 * Reads which instance this is. A copy whose original is gone takes over its
 * id. Needs an open transaction.
 */
void
instance_load(Instance *instance)
{
	HeapTuple	row;
	TupleDesc	columns;
	bool		isnull;
	bool		is_ours;
	bool		original_lives;

	own_table_require(relations_enter()->instance, OWN_INSTANCE);
	SPI_connect();
	if (transaction_query("SELECT i.id, i.first_window, i.database = d.oid, "
						  "EXISTS (SELECT FROM pg_database o WHERE o.oid = i.database), i.publisher, i.database, i.layout_epoch "
						  "FROM outbox.instance i, pg_database d WHERE d.oid = $1 LIMIT 1",
						  1, (Oid[]) {OIDOID}, (Datum[]) {ObjectIdGetDatum(MyDatabaseId)}, NULL) != 1)
		elog(ERROR, "outbox.instance is empty");
	own_rows_require(ROWS_INSTANCE);
	row = SPI_tuptable->vals[0];
	columns = SPI_tuptable->tupdesc;
	instance->id = *DatumGetUUIDP(SPI_getbinval(row, columns, 1, &isnull));
	instance->first_window = DatumGetInt64(SPI_getbinval(row, columns, 2, &isnull));
	is_ours = DatumGetBool(SPI_getbinval(row, columns, 3, &isnull));
	original_lives = DatumGetBool(SPI_getbinval(row, columns, 4, &isnull));
	instance->database = DatumGetObjectId(SPI_getbinval(row, columns, 6, &isnull));
	instance->layout_epoch = DatumGetInt64(SPI_getbinval(row, columns, 7, &isnull));
	(void) SPI_getbinval(row, columns, 5, &isnull);
	strlcpy(instance->publisher, isnull ? "" : SPI_getvalue(row, columns, 5), sizeof(instance->publisher));
	SPI_finish();

	instance->is_copy = !is_ours && (original_lives || !database_heir_claim(&instance->id, instance->database));
	if (!is_ours && !instance->is_copy)
		instance_become(instance, instance->first_window);
}

/*
 * Writes the id and the database of this instance, and that nothing from before
 * the end of `first_window` is sent again. Needs an open transaction.
 */
void
instance_become(Instance *instance, int64 first_window)
{
	instance->first_window = first_window;
	(void) transaction_execute("UPDATE outbox.instance SET id = $1, database = $2, first_window = $3",
							   3, (Oid[]) {UUIDOID, OIDOID, INT8OID},
							   (Datum[]) {UUIDPGetDatum(&instance->id), ObjectIdGetDatum(MyDatabaseId),
										  Int64GetDatum(first_window)}, NULL);
}

/* Writes which server publishes from now on. Needs an open transaction. */
void
instance_publish_as(Instance *instance, const char *publisher)
{
	strlcpy(instance->publisher, publisher, sizeof(instance->publisher));
	(void) transaction_execute("UPDATE outbox.instance SET publisher = $1",
							   1, (Oid[]) {TEXTOID}, (Datum[]) {CStringGetTextDatum(publisher)}, NULL);
}

/* Writes the epoch that a layout of partitions is told with. Needs an open transaction. */
void
instance_note_layout(Instance *instance, int64 epoch)
{
	instance->layout_epoch = epoch;
	(void) transaction_execute("UPDATE outbox.instance SET layout_epoch = $1",
							   1, (Oid[]) {INT8OID}, (Datum[]) {Int64GetDatum(epoch)}, NULL);
}
