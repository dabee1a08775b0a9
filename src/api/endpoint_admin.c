/*
 * endpoint_admin.c
 *		outbox_create_endpoint(), outbox_alter_endpoint(), outbox_drop_endpoint().
 *
 * Called by SQL. They check settings before these are stored, so that an
 * endpoint that exists works. Rows are written with the privileges of the extension's
 * owner (endpoint_row.c), but the caller must own a table to make it a record
 * table: otherwise an administrator of the outbox could have us write to any table.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/api/endpoint_row.h"
#include "src/api/endpoint_unsent.h"
#include "src/compat.h"
#include "src/owner_privileges.h"
#include "src/record/endpoint.h"
#include "src/record/record_table_check.h"
#include "src/settings.h"
#include "src/store/store.h"
#include "src/table/own_table.h"

/* Arguments that are not settings. */
#define ARG_RESET	NSETTINGS	/* of outbox_alter_endpoint() */
#define ARG_FORCE	1			/* of outbox_drop_endpoint() */

static void read_arguments(FunctionCallInfo fcinfo, EndpointRow *settings);
static void check_settings(const EndpointRow *settings);
static void check_retention(const char *name, const Interval *retention);
static void check_store_retention(const Interval *retention);
static void check_has_store(const EndpointRow *row);
static void check_record_table(const EndpointRow *settings, bool by_caller);
static void check_caller_owns(Oid table);
static bool gives(const TriggerData *trigger, int setting, Datum *value);
static const char **read_reset(FunctionCallInfo fcinfo, const EndpointRow *settings);
static void warn_of_forgotten(const EndpointRow *before, const EndpointRow *row);

PG_FUNCTION_INFO_V1(outbox_create_endpoint);
PG_FUNCTION_INFO_V1(outbox_alter_endpoint);
PG_FUNCTION_INFO_V1(outbox_drop_endpoint);
PG_FUNCTION_INFO_V1(outbox_check_endpoint);

/* outbox_create_endpoint(name, concurrency, retention, record_table, record_columns, dedup_store, store_retention) */
Datum
outbox_create_endpoint(PG_FUNCTION_ARGS)
{
	EndpointRow settings;
	char	   *name;

	owner_code_refuse();
	read_arguments(fcinfo, &settings);
	check_settings(&settings);
	check_has_store(&settings);
	check_record_table(&settings, true);
	name = TextDatumGetCString(settings.values[SETTING_NAME]);

	/* That one exists also while it has no row. */
	if (strcmp(name, DEFAULT_ENDPOINT) == 0 || !endpoint_row_insert(&settings))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("endpoint \"%s\" already exists", name),
				 errhint("Use outbox_alter_endpoint() to change its settings.")));
	PG_RETURN_VOID();
}

/*
 * outbox_alter_endpoint(name, concurrency, retention, record_table,
 * record_columns, dedup_store, store_retention, reset): what is NULL stays as it is, what is in
 * `reset` gets its default.
 */
Datum
outbox_alter_endpoint(PG_FUNCTION_ARGS)
{
	EndpointRow settings;
	EndpointRow before;
	EndpointRow row;
	const char **reset;
	char	   *name;

	owner_code_refuse();
	read_arguments(fcinfo, &settings);
	check_settings(&settings);
	reset = read_reset(fcinfo, &settings);
	name = TextDatumGetCString(settings.values[SETTING_NAME]);
	if (strcmp(name, DEFAULT_ENDPOINT) == 0)
		endpoint_row_insert_default();
	if (!endpoint_row_read(name, &before) || !endpoint_row_update(&settings, reset, &row))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("endpoint \"%s\" does not exist", name)));
	if (reset[SETTING_RECORD_TABLE] || !settings.isnull[SETTING_RECORD_TABLE])
		warn_of_forgotten(&before, &row);
	check_has_store(&row);
	check_record_table(&row, !settings.isnull[SETTING_RECORD_TABLE] || !settings.isnull[SETTING_RECORD_COLUMNS]);
	PG_RETURN_VOID();
}

/* outbox_drop_endpoint(name, force) */
Datum
outbox_drop_endpoint(PG_FUNCTION_ARGS)
{
	char	   *name;
	Endpoint	endpoint;
	bool		has_store;

	owner_code_refuse();
	name = text_to_cstring(argument_name(fcinfo, SETTING_NAME, "endpoint name"));
	if (PG_ARGISNULL(ARG_FORCE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("force must not be null")));
	has_store = endpoint_find(name, &endpoint) && endpoint.dedup_store;
	if (!endpoint_row_delete(name))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("endpoint \"%s\" does not exist", name)));
	if (!PG_GETARG_BOOL(ARG_FORCE))
		endpoint_unsent_check(name, has_store);
	PG_RETURN_VOID();
}

/*
 * Trigger: a role that can write to outbox.endpoint without our functions, such as
 * a member of pg_write_all_data, must not have the server connect to where it likes
 * as the operating system user, or write to a table as its owner. The functions write as the
 * owner of outbox.endpoint, and have checked their callers.
 */
Datum
outbox_check_endpoint(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Datum		value;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!(TRIGGER_FIRED_BY_INSERT(trigger->tg_event) || TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired BEFORE INSERT or UPDATE FOR EACH ROW",
						"outbox.check_endpoint")));
	own_table_check(trigger->tg_relation, OWN_ENDPOINT);
	if (GetUserId() != trigger->tg_relation->rd_rel->relowner)
	{
		if (gives(trigger, SETTING_DEDUP_STORE, &value))
			store_check_privilege();
		if (gives(trigger, SETTING_RECORD_TABLE, &value))
			check_caller_owns(DatumGetObjectId(value));
	}
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple);
}

/* Check whether the row that is being written has a setting that it did not have before, and returns that in *value. */
static bool
gives(const TriggerData *trigger, int setting, Datum *value)
{
	TupleDesc	columns = RelationGetDescr(trigger->tg_relation);
	Form_pg_attribute column = TupleDescAttr(columns, setting);
	bool		is_update = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event);
	Datum		before;
	bool		isnull;

	*value = heap_getattr(is_update ? trigger->tg_newtuple : trigger->tg_trigtuple, setting + 1, columns, &isnull);
	if (isnull || !is_update)
		return !isnull;
	before = heap_getattr(trigger->tg_trigtuple, setting + 1, columns, &isnull);
	return isnull || !datum_image_eq(before, *value, column->attbyval, column->attlen);
}

/* Reads the arguments that are settings; only the name is checked here. */
static void
read_arguments(FunctionCallInfo fcinfo, EndpointRow *settings)
{
	(void) argument_name(fcinfo, SETTING_NAME, "endpoint name");
	for (int i = 0; i < NSETTINGS; i++)
	{
		settings->values[i] = PG_ARGISNULL(i) ? (Datum) 0 : PG_GETARG_DATUM(i);
		settings->isnull[i] = PG_ARGISNULL(i);
	}
}

/* Checks what can be checked without looking at anything else. */
static void
check_settings(const EndpointRow *settings)
{
	if (!settings->isnull[SETTING_CONCURRENCY])
		(void) argument_concurrency(settings->values[SETTING_CONCURRENCY]);
	if (!settings->isnull[SETTING_RETENTION])
		check_retention("retention", DatumGetIntervalP(settings->values[SETTING_RETENTION]));
	if (!settings->isnull[SETTING_DEDUP_STORE])
		store_check(TextDatumGetCString(settings->values[SETTING_DEDUP_STORE]));
	if (!settings->isnull[SETTING_STORE_RETENTION])
		check_store_retention(DatumGetIntervalP(settings->values[SETTING_STORE_RETENTION]));
}

/* Checks that an interval is positive; name is that of the argument. */
static void
check_retention(const char *name, const Interval *retention)
{
	Interval	zero = {0};

	if (!DatumGetBool(DirectFunctionCall2(interval_gt, IntervalPGetDatum(retention), IntervalPGetDatum(&zero))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than zero", name)));
}

/* A store that has lost ids is given them again within that time, so it must not keep them shorter. */
static void
check_store_retention(const Interval *retention)
{
	Interval	least = {.time = outbox_replay_window * USECS_PER_SEC};

	check_retention("store_retention", retention);
	if (DatumGetBool(DirectFunctionCall2(interval_lt, IntervalPGetDatum(retention), IntervalPGetDatum(&least))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("store_retention must not be shorter than \"outbox.replay_window\""),
				 errdetail("\"outbox.replay_window\" is %d s.", outbox_replay_window)));
}

/* Refuses a row that says how long a store keeps ids, but names none. */
static void
check_has_store(const EndpointRow *row)
{
	if (!row->isnull[SETTING_STORE_RETENTION] && row->isnull[SETTING_DEDUP_STORE])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("store_retention requires a dedup_store")));
}

/*
 * Checks the table and the columns that a row names; by_caller says that the
 * caller has just named them.
 */
static void
check_record_table(const EndpointRow *settings, bool by_caller)
{
	Jsonb	   *columns = settings->isnull[SETTING_RECORD_COLUMNS] ? NULL :
		DatumGetJsonbP(settings->values[SETTING_RECORD_COLUMNS]);
	RecordMapping mapping;
	RecordShape shape;
	Relation	table;

	if (!by_caller)
		return;
	if (settings->isnull[SETTING_RECORD_TABLE])
	{
		if (columns)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("record_columns requires a record_table")));
		return;
	}
	record_mapping_read(&mapping, DatumGetObjectId(settings->values[SETTING_RECORD_TABLE]), columns);
	if (mapping.problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s", mapping.problem),
				 errhint("Valid keys are \"message_id\", \"dispatched\" and \"dispatched_at\".")));
	table = try_relation_open(mapping.table, AccessShareLock);
	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("record_table does not exist")));
	check_caller_owns(mapping.table);
	record_table_check(table, &mapping, &shape);
	table_close(table, NoLock);
}

/* Checks the privileges of the caller, although the row is written with those of another role. */
static void
check_caller_owns(Oid table)
{
	if (!compat_owns_table(table))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s to make it a record table", get_rel_name(table))));
}

/* Returns the settings to be reset, as an array that has a name or NULL for each. */
static const char **
read_reset(FunctionCallInfo fcinfo, const EndpointRow *settings)
{
	const char **reset = palloc0(NSETTINGS * sizeof(char *));
	ListCell   *cell;

	foreach(cell, argument_names(fcinfo, ARG_RESET, "reset"))
	{
		const char *name = lfirst(cell);
		int			setting = SETTING_NAME + 1;

		while (setting < NSETTINGS && strcmp(name, endpoint_setting_names[setting]) != 0)
			setting++;
		if (setting == NSETTINGS)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid setting in reset: \"%s\"", name),
					 errhint("The settings of an endpoint are concurrency, retention, record_table, record_columns, dedup_store and store_retention.")));
		if (!settings->isnull[setting])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s is both set and reset", name)));
		reset[setting] = endpoint_setting_names[setting];
	}

	/*
	 * Names of columns mean nothing without the table, nor does a store's
	 * retention without the store.
	 */
	if (reset[SETTING_RECORD_TABLE] && settings->isnull[SETTING_RECORD_COLUMNS])
		reset[SETTING_RECORD_COLUMNS] = endpoint_setting_names[SETTING_RECORD_COLUMNS];
	if (reset[SETTING_DEDUP_STORE] && settings->isnull[SETTING_STORE_RETENTION])
		reset[SETTING_STORE_RETENTION] = endpoint_setting_names[SETTING_STORE_RETENTION];
	return reset;
}

/* Warns that ids in a table that the endpoint no longer uses are new again. */
static void
warn_of_forgotten(const EndpointRow *before, const EndpointRow *row)
{
	char	   *table;

	if (before->isnull[SETTING_RECORD_TABLE] ||
		(!row->isnull[SETTING_RECORD_TABLE] && row->values[SETTING_RECORD_TABLE] == before->values[SETTING_RECORD_TABLE]))
		return;
	table = get_rel_name(DatumGetObjectId(before->values[SETTING_RECORD_TABLE]));
	if (table)
		ereport(WARNING,
				(errmsg("endpoint \"%s\" no longer knows the message ids in table \"%s\"",
						TextDatumGetCString(row->values[SETTING_NAME]), table),
				 errdetail("Such a message is processed again if it is delivered again.")));
}
