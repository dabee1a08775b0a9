/*
 * endpoint_admin.c
 *		outbox_create_endpoint(), outbox_alter_endpoint(), outbox_drop_endpoint().
 *
 * Called by SQL. They check settings before these are stored, so that an
 * endpoint that exists works. They write with the rights of the extension's
 * owner, but whether a table may become a record table is asked of the caller:
 * else an administrator of the outbox could have us write to anybody's table.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/window.h"
#include "src/record/endpoint.h"
#include "src/record/owner.h"
#include "src/record/record.h"
#include "src/record/record_check.h"
#include "src/record/record_key.h"
#include "src/settings.h"
#include "src/store/store.h"
#include "src/table/relations.h"

/* Arguments of all three functions, and columns of outbox.endpoint. */
enum
{
	ARG_NAME,
	ARG_CONCURRENCY,
	ARG_RETENTION,
	ARG_RECORD_TABLE,
	ARG_RECORD_COLUMNS,
	ARG_DEDUP_STORE,
	ARG_STORE_RETENTION,
	NSETTINGS,
	ARG_RESET = NSETTINGS,
	ARG_FORCE = 1
};

static const char *const setting_names[NSETTINGS] = {
	"name", "concurrency", "retention", "record_table", "record_columns", "dedup_store", "store_retention"
};

/* A row of outbox.endpoint, or what is to become one. */
typedef struct Settings
{
	Datum		values[NSETTINGS];
	bool		isnull[NSETTINGS];
} Settings;

/* What is searched for among messages that are not yet sent. */
typedef struct EndpointSearch
{
	const char *endpoint;
	bool		has_store;
	const SnapshotValue *published;	/* what is in Redis was seen by this */
	bool		found;
	bool		is_id;			/* a message is in Redis, but those whom the
								 * endpoint names have not been told */
} EndpointSearch;

static void read_arguments(FunctionCallInfo fcinfo, Settings *settings);
static void check_settings(const Settings *settings);
static void check_retention(const char *name, const Interval *retention);
static void check_store_retention(const Interval *retention);
static void check_has_store(const Settings *row);
static void check_record_table(const Settings *settings, bool by_caller);
static void check_caller_owns(Oid table);
static const char **read_reset(FunctionCallInfo fcinfo, const Settings *settings);
static void warn_of_forgotten(const Settings *before, const Settings *row);
static bool read_row(const char *name, Settings *row);
static bool store_new(const Settings *settings);
static bool store_changed(const Settings *settings, const char **reset, Settings *row);
static void store_default(void);
static void remove_row(const char *name);
static int64 execute_as_owner(const char *sql, int nargs, const Settings *settings, Settings *row);
static void copy_row(Settings *row);
static void refuse_second_use(const Settings *settings);
static void refuse_undispatched(const char *name, bool has_store);
static void search_undispatched(EndpointSearch *search);
static bool match_message(TupleTableSlot *row, int segment, void *arg);
static bool match_deferred(const Deferred *row, void *arg);
static bool belongs_to(const Message *message, const char *endpoint);

PG_FUNCTION_INFO_V1(outbox_create_endpoint);
PG_FUNCTION_INFO_V1(outbox_alter_endpoint);
PG_FUNCTION_INFO_V1(outbox_drop_endpoint);

/* outbox_create_endpoint(name, concurrency, retention, record_table, record_columns, dedup_store, store_retention) */
Datum
outbox_create_endpoint(PG_FUNCTION_ARGS)
{
	Settings	settings;

	read_arguments(fcinfo, &settings);
	check_settings(&settings);
	check_has_store(&settings);
	check_record_table(&settings, true);
	if (!store_new(&settings))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("endpoint \"%s\" already exists", TextDatumGetCString(settings.values[ARG_NAME])),
				 errhint("Use outbox_alter_endpoint() to change its settings.")));
	PG_RETURN_VOID();
}

/*
 * outbox_alter_endpoint(name, concurrency, retention, record_table,
 * record_columns, dedup_store, store_retention, reset): what is NULL stays as it is, what is in
 * `reset` falls back on the default.
 */
Datum
outbox_alter_endpoint(PG_FUNCTION_ARGS)
{
	Settings	settings;
	Settings	before;
	Settings	row;
	const char **reset;
	char	   *name;

	read_arguments(fcinfo, &settings);
	check_settings(&settings);
	reset = read_reset(fcinfo, &settings);
	name = TextDatumGetCString(settings.values[ARG_NAME]);
	if (strcmp(name, "default") == 0)
		store_default();
	if (!read_row(name, &before) || !store_changed(&settings, reset, &row))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("endpoint \"%s\" does not exist", name)));
	if (reset[ARG_RECORD_TABLE] || !settings.isnull[ARG_RECORD_TABLE])
		warn_of_forgotten(&before, &row);
	check_has_store(&row);
	check_record_table(&row, !settings.isnull[ARG_RECORD_TABLE] || !settings.isnull[ARG_RECORD_COLUMNS]);
	PG_RETURN_VOID();
}

/* outbox_drop_endpoint(name, force) */
Datum
outbox_drop_endpoint(PG_FUNCTION_ARGS)
{
	char	   *name;
	Endpoint	endpoint;
	bool		has_store;

	name = text_to_cstring(argument_name(fcinfo, ARG_NAME, "endpoint name"));
	if (PG_ARGISNULL(ARG_FORCE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("force must not be null")));
	has_store = endpoint_find(name, &endpoint) && endpoint.dedup_store;
	remove_row(name);
	if (!PG_GETARG_BOOL(ARG_FORCE))
		refuse_undispatched(name, has_store);
	PG_RETURN_VOID();
}

/* Raises an error if messages of the endpoint are on their way, or their ids. */
static void
refuse_undispatched(const char *name, bool has_store)
{
	EndpointSearch search = {.endpoint = name, .has_store = has_store};

	search_undispatched(&search);
	if (search.found && search.is_id)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("endpoint \"%s\" has message ids that have not been propagated", name),
				 errdetail("Its deduplication store has not been told of them, or they are not marked in its record table."),
				 errhint("Wait until they are, or use force => true: they are then forgotten.")));
	if (search.found)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("endpoint \"%s\" has messages that are not yet sent", name),
				 errhint("Wait until outbox.pending and outbox.dead_letters show none of them, or use force => true: they are then sent all the same.")));
}

static void
read_arguments(FunctionCallInfo fcinfo, Settings *settings)
{
	(void) argument_name(fcinfo, ARG_NAME, "endpoint name");
	for (int i = 0; i < NSETTINGS; i++)
	{
		settings->values[i] = PG_ARGISNULL(i) ? (Datum) 0 : PG_GETARG_DATUM(i);
		settings->isnull[i] = PG_ARGISNULL(i);
	}
}

/* Checks what can be checked without looking at anything else. */
static void
check_settings(const Settings *settings)
{
	if (!settings->isnull[ARG_CONCURRENCY])
		(void) argument_concurrency(settings->values[ARG_CONCURRENCY]);
	if (!settings->isnull[ARG_RETENTION])
		check_retention("retention", DatumGetIntervalP(settings->values[ARG_RETENTION]));
	if (!settings->isnull[ARG_DEDUP_STORE])
		store_check(TextDatumGetCString(settings->values[ARG_DEDUP_STORE]));
	if (!settings->isnull[ARG_STORE_RETENTION])
		check_store_retention(DatumGetIntervalP(settings->values[ARG_STORE_RETENTION]));
}

static void
check_retention(const char *name, const Interval *retention)
{
	Interval	zero = {0};

	if (!DatumGetBool(DirectFunctionCall2(interval_gt, IntervalPGetDatum(retention), IntervalPGetDatum(&zero))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than zero", name)));
}

/* What the store has lost within that time is added again: till then it must know the rest. */
static void
check_store_retention(const Interval *retention)
{
	Interval	least = {.time = outbox_replay_window * USECS_PER_SEC};

	check_retention("store_retention", retention);
	if (DatumGetBool(DirectFunctionCall2(interval_lt, IntervalPGetDatum(retention), IntervalPGetDatum(&least))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("store_retention must not be shorter than outbox.replay_window"),
				 errdetail("outbox.replay_window is %d s.", outbox_replay_window)));
}

/* Refuses a row that says how long a store keeps ids, but names none. */
static void
check_has_store(const Settings *row)
{
	if (!row->isnull[ARG_STORE_RETENTION] && row->isnull[ARG_DEDUP_STORE])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("store_retention needs a dedup_store")));
}

/*
 * Checks the table and the columns that a row names; by_caller says that the
 * caller has just named them.
 */
static void
check_record_table(const Settings *settings, bool by_caller)
{
	Jsonb	   *columns = settings->isnull[ARG_RECORD_COLUMNS] ? NULL :
		DatumGetJsonbP(settings->values[ARG_RECORD_COLUMNS]);
	RecordMapping mapping;
	RecordShape shape;
	Relation	table;

	if (!by_caller)
		return;
	if (settings->isnull[ARG_RECORD_TABLE])
	{
		if (columns)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("record_columns needs a record_table")));
		return;
	}
	record_mapping_read(&mapping, DatumGetObjectId(settings->values[ARG_RECORD_TABLE]), columns);
	if (mapping.problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s", mapping.problem),
				 errhint("It may name \"message_id\", \"dispatched\" and \"dispatched_at\".")));
	table = try_relation_open(mapping.table, AccessShareLock);
	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("record_table does not exist")));
	check_caller_owns(mapping.table);
	record_check(table, &mapping, &shape);
	table_close(table, NoLock);
}

static void
check_caller_owns(Oid table)
{
	if (!compat_owns_table(table))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s to make it a record table", get_rel_name(table))));
}

/* Which settings are to be reset, as an array that has a name or NULL for each. */
static const char **
read_reset(FunctionCallInfo fcinfo, const Settings *settings)
{
	const char **reset = palloc0(NSETTINGS * sizeof(char *));
	Datum	   *names = NULL;
	bool	   *isnull = NULL;
	int			n = 0;

	if (!PG_ARGISNULL(ARG_RESET))
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(ARG_RESET), TEXTOID, -1, false, TYPALIGN_INT,
						  &names, &isnull, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *name = isnull[i] ? pstrdup("") : TextDatumGetCString(names[i]);
		int			setting = ARG_NAME + 1;

		while (setting < NSETTINGS && strcmp(name, setting_names[setting]) != 0)
			setting++;
		if (setting == NSETTINGS)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid setting in reset: \"%s\"", name),
					 errhint("Settings of an endpoint are concurrency, retention, record_table, record_columns, dedup_store and store_retention.")));
		if (!settings->isnull[setting])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s is both set and reset", name)));
		reset[setting] = setting_names[setting];
	}

	/* Names of columns mean nothing without the table, nor does a store's retention without the store. */
	if (reset[ARG_RECORD_TABLE] && settings->isnull[ARG_RECORD_COLUMNS])
		reset[ARG_RECORD_COLUMNS] = setting_names[ARG_RECORD_COLUMNS];
	if (reset[ARG_DEDUP_STORE] && settings->isnull[ARG_STORE_RETENTION])
		reset[ARG_STORE_RETENTION] = setting_names[ARG_STORE_RETENTION];
	return reset;
}

/* Ids in a table that the endpoint has no more are not looked for any more. */
static void
warn_of_forgotten(const Settings *before, const Settings *row)
{
	char	   *table;

	if (before->isnull[ARG_RECORD_TABLE] ||
		(!row->isnull[ARG_RECORD_TABLE] && row->values[ARG_RECORD_TABLE] == before->values[ARG_RECORD_TABLE]))
		return;
	table = get_rel_name(DatumGetObjectId(before->values[ARG_RECORD_TABLE]));
	if (table)
		ereport(WARNING,
				(errmsg("endpoint \"%s\" no longer knows the message ids in table \"%s\"",
						TextDatumGetCString(row->values[ARG_NAME]), table),
				 errdetail("Such a message is processed again if it is delivered again.")));
}

static bool
read_row(const char *name, Settings *row)
{
	Settings	settings = {.values = {CStringGetTextDatum(name)}};

	return execute_as_owner("SELECT name, concurrency, retention, record_table, record_columns, dedup_store, store_retention"
							" FROM outbox.endpoint WHERE name = $1 FOR UPDATE", 1, &settings, row) > 0;
}

/* False if there is such an endpoint already. */
static bool
store_new(const Settings *settings)
{
	refuse_second_use(settings);
	return execute_as_owner("INSERT INTO outbox.endpoint"
							" (name, concurrency, retention, record_table, record_columns, dedup_store, store_retention)"
							" VALUES ($1, $2, $3, $4, $5, $6, $7)"
							" ON CONFLICT (name) DO NOTHING RETURNING *", NSETTINGS, settings, NULL) > 0;
}

/* False if there is no such endpoint; else *row is what it is now. */
static bool
store_changed(const Settings *settings, const char **reset, Settings *row)
{
	StringInfoData sql;

	refuse_second_use(settings);
	initStringInfo(&sql);
	appendStringInfoString(&sql, "UPDATE outbox.endpoint SET ");
	for (int i = ARG_NAME + 1; i < NSETTINGS; i++)
	{
		const char *name = setting_names[i];

		if (i > ARG_NAME + 1)
			appendStringInfoString(&sql, ", ");
		if (reset[i])
			appendStringInfo(&sql, "%s = NULL", name);
		else
			appendStringInfo(&sql, "%s = coalesce($%d, %s)", name, i + 1, name);
	}
	appendStringInfoString(&sql, " WHERE name = $1"
						   " RETURNING name, concurrency, retention, record_table, record_columns, dedup_store, store_retention");
	return execute_as_owner(sql.data, NSETTINGS, settings, row) > 0;
}

/* The endpoint "default" is there without a row until it gets settings. */
static void
store_default(void)
{
	(void) execute_as_owner("INSERT INTO outbox.endpoint (name) VALUES ('default') ON CONFLICT (name) DO NOTHING",
							0, NULL, NULL);
}

static void
remove_row(const char *name)
{
	Settings	settings = {.values = {CStringGetTextDatum(name)}};

	if (execute_as_owner("DELETE FROM outbox.endpoint WHERE name = $1", 1, &settings, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("endpoint \"%s\" does not exist", name)));
}

/* Two endpoints in one table would take each other's ids for their own. */
static void
refuse_second_use(const Settings *settings)
{
	Settings	other;

	if (settings->isnull[ARG_RECORD_TABLE])
		return;
	if (execute_as_owner("SELECT name, concurrency, retention, record_table, record_columns, dedup_store, store_retention"
						 " FROM outbox.endpoint WHERE record_table = $4 AND name <> $1",
						 ARG_RECORD_TABLE + 1, settings, &other) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" is already the record table of endpoint \"%s\"",
						get_rel_name(DatumGetObjectId(settings->values[ARG_RECORD_TABLE])),
						TextDatumGetCString(other.values[ARG_NAME]))));
}

/*
 * Runs a statement on outbox.endpoint with the first settings as its
 * parameters. Returns how many rows it touched; the last is copied to *row.
 */
static int64
execute_as_owner(const char *sql, int nargs, const Settings *settings, Settings *row)
{
	static Oid	types[NSETTINGS] = {TEXTOID, TEXTOID, INTERVALOID, REGCLASSOID, JSONBOID, TEXTOID, INTERVALOID};
	Relation	table = table_open(relations_enter()->endpoint, AccessShareLock);
	char		nulls[NSETTINGS];
	OwnerRights before;
	int64		rows;
	int			result;

	for (int i = 0; i < nargs; i++)
		nulls[i] = settings->isnull[i] ? 'n' : ' ';
	owner_rights_take(&before, table->rd_rel->relowner);
	SPI_connect();
	result = SPI_execute_with_args(sql, nargs, types, settings ? (Datum *) settings->values : NULL,
								   nulls, false, 0);
	if (result < 0)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(result));
	rows = (int64) SPI_processed;
	if (row && rows > 0)
		copy_row(row);
	SPI_finish();
	owner_rights_return(&before);
	table_close(table, AccessShareLock);
	return rows;
}

/* Copies the row that a statement returned out of SPI's memory. */
static void
copy_row(Settings *row)
{
	for (int i = 0; i < NSETTINGS; i++)
	{
		Form_pg_attribute column = TupleDescAttr(SPI_tuptable->tupdesc, i);
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &row->isnull[i]);

		row->values[i] = row->isnull[i] ? (Datum) 0 :
			SPI_datumTransfer(value, column->attbyval, column->attlen);
	}
}

/* Looks for committed messages that Redis may not have, and for ids that may not have been propagated. */
static void
search_undispatched(EndpointSearch *search)
{
	Window		published;
	Window		propagated;

	/* In the order in which a message may move meanwhile: none is missed. */
	if (!window_published(&published))
		return;
	search->published = published.snapshot;
	if (!window_propagated(&propagated, !search->has_store) || propagated.number > published.number)
		propagated = published;
	log_scan(SnapshotSelf, propagated.snapshot, snapshot_value_latest(), match_message, search);
	if (!search->found || search->is_id)
		deferred_scan(match_deferred, search);
}

static bool
match_message(TupleTableSlot *row, int segment, void *arg)
{
	EndpointSearch *search = arg;
	bool		is_sent = snapshot_value_sees(search->published, log_row_tx(row));
	Message		message;

	if (is_sent && (search->found || !log_row_is_receipt(row)))
		return true;
	log_row_message(row, &message);
	if (!belongs_to(&message, search->endpoint))
		return true;
	search->found = true;
	search->is_id = is_sent;
	return is_sent;
}

static bool
match_deferred(const Deferred *row, void *arg)
{
	EndpointSearch *search = arg;

	if (row->state == DEFERRED_RETURNED || row->state == DEFERRED_DISCARDED ||
		!belongs_to(&row->message, search->endpoint))
		return true;
	search->found = true;
	search->is_id = false;
	return false;
}

/* A message does not name its endpoint, but the key of its record does; that of a receipt, too. */
static bool
belongs_to(const Message *message, const char *endpoint)
{
	pg_uuid_t	key;

	if (!message->has_key || message->cause == NULL)
		return false;
	record_key_make(endpoint, text_to_cstring(message->cause), &key);
	return memcmp(&key, &message->key, sizeof(key)) == 0;
}
