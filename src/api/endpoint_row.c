/*
 * endpoint_row.c
 *		Reads and writes the rows of outbox.endpoint.
 *
 * Called by endpoint_admin.c, which has checked what is to be written. It works with
 * the privileges of the extension's owner: the caller need have none on the table.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "src/api/endpoint_row.h"
#include "src/owner_privileges.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

#define COLUMNS	"name, concurrency, retention, record_table, record_columns, dedup_store, store_retention"

const char *const endpoint_setting_names[NSETTINGS] = {
	"name", "concurrency", "retention", "record_table", "record_columns", "dedup_store", "store_retention"
};

static int64 execute_as_owner(const char *sql, int nargs, const EndpointRow *settings, EndpointRow *row);
static void copy_row(EndpointRow *row);
static void refuse_second_use(const EndpointRow *settings);

/* Reads and locks the row of an endpoint. Returns false if there is none. */
bool
endpoint_row_read(const char *name, EndpointRow *row)
{
	EndpointRow settings = {.values = {CStringGetTextDatum(name)}};

	return execute_as_owner("SELECT " COLUMNS " FROM outbox.endpoint WHERE name = $1 FOR UPDATE", 1, &settings, row) > 0;
}

/* Writes a new row. Returns false if there is such an endpoint already. */
bool
endpoint_row_insert(const EndpointRow *settings)
{
	refuse_second_use(settings);
	return execute_as_owner("INSERT INTO outbox.endpoint"
							" (" COLUMNS ")"
							" VALUES ($1, $2, $3, $4, $5, $6, $7)"
							" ON CONFLICT (name) DO NOTHING RETURNING *", NSETTINGS, settings, NULL) > 0;
}

/*
 * Changes a row: what is NULL stays as it is, and what has a name in `reset` becomes
 * NULL. Returns false if there is no such endpoint; otherwise *row is its new row.
 */
bool
endpoint_row_update(const EndpointRow *settings, const char **reset, EndpointRow *row)
{
	StringInfoData sql;

	refuse_second_use(settings);
	initStringInfo(&sql);
	appendStringInfoString(&sql, "UPDATE outbox.endpoint SET ");
	for (int i = SETTING_NAME + 1; i < NSETTINGS; i++)
	{
		const char *name = endpoint_setting_names[i];

		if (i > SETTING_NAME + 1)
			appendStringInfoString(&sql, ", ");
		if (reset[i])
			appendStringInfo(&sql, "%s = NULL", name);
		else
			appendStringInfo(&sql, "%s = coalesce($%d, %s)", name, i + 1, name);
	}
	appendStringInfoString(&sql, " WHERE name = $1"
						   " RETURNING " COLUMNS);
	return execute_as_owner(sql.data, NSETTINGS, settings, row) > 0;
}

/* Writes the row of the endpoint "default", which exists without one until it gets settings. */
void
endpoint_row_insert_default(void)
{
	(void) execute_as_owner("INSERT INTO outbox.endpoint (name) VALUES ('default') ON CONFLICT (name) DO NOTHING",
							0, NULL, NULL);
}

/* Deletes a row. Returns false if there is no such endpoint. */
bool
endpoint_row_delete(const char *name)
{
	EndpointRow settings = {.values = {CStringGetTextDatum(name)}};

	return execute_as_owner("DELETE FROM outbox.endpoint WHERE name = $1", 1, &settings, NULL) > 0;
}

/* Raises an error if the table has an endpoint already: they would take each other's ids for their own. */
static void
refuse_second_use(const EndpointRow *settings)
{
	EndpointRow other;

	if (settings->isnull[SETTING_RECORD_TABLE])
		return;
	if (execute_as_owner("SELECT " COLUMNS " FROM outbox.endpoint WHERE record_table = $4 AND name <> $1",
						 SETTING_RECORD_TABLE + 1, settings, &other) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" is already the record table of endpoint \"%s\"",
						get_rel_name(DatumGetObjectId(settings->values[SETTING_RECORD_TABLE])),
						TextDatumGetCString(other.values[SETTING_NAME]))));
}

/*
 * Runs a statement on outbox.endpoint with the first settings as its
 * parameters. Returns how many rows it touched; the last is copied to *row.
 */
static int64
execute_as_owner(const char *sql, int nargs, const EndpointRow *settings, EndpointRow *row)
{
	static Oid	types[NSETTINGS] = {TEXTOID, TEXTOID, INTERVALOID, REGCLASSOID, JSONBOID, TEXTOID, INTERVALOID};
	Relation	table = own_table_open(relations_enter()->endpoint, OWN_ENDPOINT, AccessShareLock);
	char		nulls[NSETTINGS];
	OwnerPrivileges before;
	int64		rows;
	int			result;

	for (int i = 0; i < nargs; i++)
		nulls[i] = settings->isnull[i] ? 'n' : ' ';
	owner_privileges_take(&before, table->rd_rel->relowner);
	SPI_connect();
	result = SPI_execute_with_args(sql, nargs, types, settings ? (Datum *) settings->values : NULL,
								   nulls, false, 0);
	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(result));
	rows = (int64) SPI_processed;
	if (row && rows > 0)
		copy_row(row);
	SPI_finish();
	owner_privileges_return(&before);
	table_close(table, AccessShareLock);
	return rows;
}

/* Copies the row that a statement returned out of SPI's memory. */
static void
copy_row(EndpointRow *row)
{
	own_rows_require(ROWS_ENDPOINT);
	for (int i = 0; i < NSETTINGS; i++)
	{
		Form_pg_attribute column = TupleDescAttr(SPI_tuptable->tupdesc, i);
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &row->isnull[i]);

		row->values[i] = row->isnull[i] ? (Datum) 0 :
			SPI_datumTransfer(value, column->attbyval, column->attlen);
	}
}
