/*
 * own_table.c
 *		Opens tables of ours, after a check that they have the columns that our code reads.
 *
 * Called by everything that reads or writes rows of our tables, and by our triggers on them.
 * Rows are read by the numbers of columns, with types that are known to the compiler alone.
 * The owner of a table can give a column another type, drop its NOT NULL, or put another table
 * in the place of ours, and a number would then be used as a pointer; or a view or a partitioned
 * table, which has no rows of its own and nothing that reads them. So what is there is compared
 * with what the extension's script has made, each time, when the table is locked: an
 * error is what such an owner gets. An unlogged table would be emptied by a crash, so that is an
 * error before it happens.
 *
 * What a statement returns is checked again, because it need not be from that table: the
 * owner may have made a rule that returns other rows, a table that inherits from ours, or
 * another schema of the name.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "src/compat.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

/* What a column must be. */
typedef struct OwnColumn
{
	Oid			type;
	bool		not_null;
} OwnColumn;

typedef struct OwnColumns
{
	int			n;
	const OwnColumn *columns;
} OwnColumns;

#define NOT_NULL	true

/* As in the extension's script. */
static const OwnColumn instance_columns[] = {
	{UUIDOID, NOT_NULL}, {OIDOID, NOT_NULL}, {INT8OID, NOT_NULL},
	{TEXTOID}, {INT8OID, NOT_NULL}
};
static const OwnColumn loss_columns[] = {
	{TIMESTAMPTZOID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL}
};
static const OwnColumn era_columns[] = {
	{TEXTOID, NOT_NULL}, {INT8OID}
};
static const OwnColumn mapping_columns[] = {
	{TEXTOID, NOT_NULL}, {INT8OID, NOT_NULL}, {TEXTOID},
	{INT4OID, NOT_NULL}
};
static const OwnColumn lane_columns[] = {
	{INT4OID, NOT_NULL}
};
static const OwnColumn ring_columns[] = {
	{TEXTOID, NOT_NULL}, {INT4OID, NOT_NULL}, {TEXTOID, NOT_NULL},
	{INT8OID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL}, {XID8OID, NOT_NULL},
	{TIMESTAMPTZOID}, {INT4OID}, {INT4OID, NOT_NULL}, {INT8OID, NOT_NULL}
};
static const OwnColumn compacted_columns[] = {
	{INT4OID, NOT_NULL}, {TEXTOID}, {INT8OID, NOT_NULL}
};
static const OwnColumn forgotten_columns[] = {
	{UUIDOID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL}
};
static const OwnColumn endpoint_columns[] = {
	{TEXTOID, NOT_NULL}, {TEXTOID}, {INTERVALOID}, {REGCLASSOID},
	{JSONBOID}, {TEXTOID}, {INTERVALOID}
};
static const OwnColumn deferred_columns[] = {
	{INT8OID, NOT_NULL}, {UUIDOID}, {TEXTOID, NOT_NULL},
	{TEXTOID, NOT_NULL}, {TEXTOID}, {TIMESTAMPTZOID, NOT_NULL}, {JSONBOID},
	{BYTEAOID}, {INT4OID}, {TEXTOID, NOT_NULL}, {XID8OID},
	{INT4OID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL}, {TEXTOID},
	{TIMESTAMPTZOID}, {TIMESTAMPTZOID}, {XID8OID}, {TEXTOID}, {TEXTOID}
};
static const OwnColumn destination_columns[] = {
	{TEXTOID, NOT_NULL}, {TEXTOID}, {INT4OID}, {BOOLOID, NOT_NULL},
	{TEXTOID}, {INT4OID}, {TEXTOID}
};
static const OwnColumn log_columns[] = {
	{INT8OID, NOT_NULL}, {XID8OID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL},
	{OIDOID, NOT_NULL}, {UUIDOID}, {TEXTOID}, {BYTEAOID}, {TEXTOID},
	{UUIDOID}, {JSONBOID}, {TEXTOID}, {TIMESTAMPTZOID}, {TEXTOID},
	{TEXTOID}, {TEXTOID}, {TEXTOID}
};
static const OwnColumn window_columns[] = {
	{INT8OID, NOT_NULL}, {UUIDOID, NOT_NULL}, {XID8OID, NOT_NULL},
	{PG_SNAPSHOTOID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL},
	{INT8OID, NOT_NULL}, {INT8OID, NOT_NULL}, {INT8OID, NOT_NULL},
	{INT8OID, NOT_NULL}, {TIMESTAMPTZOID}
};
static const OwnColumn record_columns[] = {
	{UUIDOID, NOT_NULL}, {XID8OID, NOT_NULL}, {TEXTOID}, {TEXTOID}
};
static const OwnColumn history_columns[] = {
	{UUIDOID, NOT_NULL}, {BYTEAOID, NOT_NULL}
};
static const OwnColumn log_id_seq_columns[] = {
	{INT8OID}, {INT8OID}, {BOOLOID}
};

#define COLUMNS(columns)	{lengthof(columns), columns}

/* The tables, and their columns; N stands for the number of a segment. */
static const struct
{
	const char *name;
	OwnColumns	columns;
}			tables[] = {
	[OWN_INSTANCE] = {"instance", COLUMNS(instance_columns)},
	[OWN_LOSS] = {"loss", COLUMNS(loss_columns)},
	[OWN_ERA] = {"era", COLUMNS(era_columns)},
	[OWN_MAPPING] = {"mapping", COLUMNS(mapping_columns)},
	[OWN_LANE] = {"lane", COLUMNS(lane_columns)},
	[OWN_RING] = {"ring", COLUMNS(ring_columns)},
	[OWN_COMPACTED] = {"compacted", COLUMNS(compacted_columns)},
	[OWN_FORGOTTEN] = {"forgotten", COLUMNS(forgotten_columns)},
	[OWN_ENDPOINT] = {"endpoint", COLUMNS(endpoint_columns)},
	[OWN_DEFERRED] = {"deferred", COLUMNS(deferred_columns)},
	[OWN_DESTINATION] = {"destination", COLUMNS(destination_columns)},
	[OWN_LOG] = {"log_N", COLUMNS(log_columns)},
	[OWN_WINDOW] = {"window_N", COLUMNS(window_columns)},
	[OWN_RECORD] = {"record_N", COLUMNS(record_columns)},
	[OWN_HISTORY] = {"history_N", COLUMNS(history_columns)},
	[OWN_LOG_ID_SEQ] = {"log_id_seq", COLUMNS(log_id_seq_columns)}
};

/* As the statements name them; others name all columns of a table in their order. */
static const OwnColumn instance_row[] = {
	{UUIDOID, NOT_NULL}, {INT8OID, NOT_NULL}, {BOOLOID, NOT_NULL},
	{BOOLOID, NOT_NULL}, {TEXTOID}, {OIDOID, NOT_NULL}, {INT8OID, NOT_NULL}
};
static const OwnColumn era_row[] = {
	{TEXTOID, NOT_NULL}
};
static const OwnColumn waiting_row[] = {
	{TEXTOID, NOT_NULL}, {INT8OID, NOT_NULL}, {INT8OID, NOT_NULL},
	{TIMESTAMPTZOID, NOT_NULL}, {TIMESTAMPTZOID, NOT_NULL}, {TEXTOID}
};
static const OwnColumn returned_row[] = {
	{INT8OID, NOT_NULL}, {UUIDOID}, {TEXTOID, NOT_NULL},
	{TEXTOID, NOT_NULL}, {TEXTOID}, {TIMESTAMPTZOID, NOT_NULL}, {JSONBOID},
	{BYTEAOID}, {XID8OID}, {TEXTOID}, {TEXTOID}
};
static const OwnColumn dead_row[] = {
	{TEXTOID, NOT_NULL}, {TEXTOID}, {INT8OID, NOT_NULL}, {BOOLOID, NOT_NULL}
};

static const OwnColumns row_kinds[] = {
	[ROWS_INSTANCE] = COLUMNS(instance_row),
	[ROWS_ERA] = COLUMNS(era_row),
	[ROWS_MAPPING] = COLUMNS(mapping_columns),
	[ROWS_DESTINATION] = COLUMNS(destination_columns),
	[ROWS_WAITING] = COLUMNS(waiting_row),
	[ROWS_RETURNED] = COLUMNS(returned_row),
	[ROWS_DEAD] = COLUMNS(dead_row),
	[ROWS_ENDPOINT] = COLUMNS(endpoint_columns)
};

static void check_relkind(Relation table, char must);
static void check_is_logged(Relation table);
static void check_columns(Relation table, const OwnColumns *own);

/*
 * Opens a table of ours of that kind, with that lock. Raises 55000 if it is no table, or its
 * columns are not those that the extension has made. There may be more, behind them.
 */
Relation
own_table_open(Oid table, OwnTable kind, LOCKMODE mode)
{
	Relation	relation;

	if (!OidIsValid(table))
		relations_raise_missing(tables[kind].name);
	relation = table_open(table, mode);
	own_table_check(relation, kind);
	return relation;
}

/* Raises the same error, if a table that is open is not of that kind. */
void
own_table_check(Relation table, OwnTable kind)
{
	check_relkind(table, kind == OWN_LOG_ID_SEQ ? RELKIND_SEQUENCE : RELKIND_RELATION);
	check_columns(table, &tables[kind].columns);
	check_is_logged(table);
}

/*
 * Raises the same error; for statements, whose rows are read with these types, too.
 * Takes AccessShareLock on the table to the end of the transaction.
 */
void
own_table_require(Oid table, OwnTable kind)
{
	table_close(own_table_open(table, kind, AccessShareLock), NoLock);
}

/*
 * Raises 55000 if what a statement has returned to SPI does not have exactly the columns of
 * that kind, or a row has NULL where none may be.
 */
void
own_rows_require(OwnRows kind)
{
	const OwnColumns *must = &row_kinds[kind];
	TupleDesc	are = SPI_tuptable ? SPI_tuptable->tupdesc : NULL;
	bool		fit = are && are->natts == must->n;

	if (SPI_processed == 0)
		return;
	for (int i = 0; fit && i < must->n; i++)
	{
		fit = TupleDescAttr(are, i)->atttypid == must->columns[i].type;
		for (uint64 row = 0; fit && must->columns[i].not_null && row < SPI_processed; row++)
			fit = !heap_attisnull(SPI_tuptable->vals[row], i + 1, are);
	}
	if (!fit)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tables of the outbox have been altered"),
				 errdetail("A statement returned rows that they cannot have."),
				 errhint("Drop their rules, tables that inherit from them, and others that took their names.")));
}

/* Raises an error if what has the name of a table of ours is of another kind. */
static void
check_relkind(Relation table, char must)
{
	if (table->rd_rel->relkind != must)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 must == RELKIND_SEQUENCE ?
				 errmsg("\"outbox.%s\" is not a sequence", RelationGetRelationName(table)) :
				 errmsg("\"outbox.%s\" is not a table", RelationGetRelationName(table)),
				 errdetail("Another object has taken the name of the one that the extension created."),
				 errhint("Rename that object, and give the extension's own its name back.")));
}

/* Raises an error if a crash would empty a table, or set a sequence back. */
static void
check_is_logged(Relation table)
{
	const char *type = table->rd_rel->relkind == RELKIND_SEQUENCE ? "SEQUENCE" : "TABLE";

	if (table->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("\"outbox.%s\" is unlogged", RelationGetRelationName(table)),
			 errdetail("A crash would lose what is in it."),
			 errhint("Execute ALTER %s outbox.%s SET LOGGED.", type, RelationGetRelationName(table))));
}

/* Raises an error if a table does not have these columns. */
static void
check_columns(Relation table, const OwnColumns *own)
{
	TupleDesc	columns = RelationGetDescr(table);

	for (int i = 0; i < own->n; i++)
	{
		const OwnColumn *must = &own->columns[i];
		Form_pg_attribute is = i < columns->natts ? TupleDescAttr(columns, i) : NULL;

		if (is && !is->attisdropped && !compat_is_virtual(is) && is->atttypid == must->type &&
			(!must->not_null || compat_is_not_null(columns, i)))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"outbox.%s\" has been altered", RelationGetRelationName(table)),
				 must->not_null ?
				 errdetail("Its column %d must be of type %s and NOT NULL.", i + 1, format_type_be(must->type)) :
				 errdetail("Its column %d must be of type %s.", i + 1, format_type_be(must->type)),
				 errhint("Alter it back.")));
	}
}
