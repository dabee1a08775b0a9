/*
 * record_table_check.c
 *		Checks whether a custom record table can hold the records of an endpoint.
 *
 * Called by endpoint_admin.c when an endpoint is created or altered, and by
 * record_table_cache.c for a table that has changed since it was checked. All that
 * deduplication and cleanup rely on is checked here and nowhere else; errors
 * name what is missing, with the statement that adds it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "src/compat.h"
#include "src/owner_privileges.h"
#include "src/record/record_table_check.h"
#include "src/table/relations.h"

static void check_as_owner(Relation table, const RecordMapping *mapping, RecordShape *shape);
static void check_kind(Relation table);
static void check_rules(Relation table);
static void check_triggers(Relation table);
static void check_columns(Relation table, const RecordMapping *mapping, RecordShape *shape);
static AttrNumber find_column(Relation table, const char *name, const char *type);
static void check_type(Relation table, AttrNumber column, bool fits, const char *types);
static void check_other_columns(Relation table, const RecordShape *shape);
static Oid	domain_that_is_not_null(Oid type);
static void find_unique_index(Relation table, const RecordMapping *mapping, RecordShape *shape);
static char *unfit_to_be_unique(Relation index, Oid collation);
static bool compares_bytes(Relation index);
static void check_cleanup_index(Relation table, const RecordMapping *mapping, const RecordShape *shape);
static bool helps_cleanup(Relation index, const RecordShape *shape);
pg_noreturn static void refuse_table(Relation table, int code, const char *detail, const char *hint);
static const char *name_of(Relation table);

/*
 * Fills *shape, or raises an error that says why the table cannot be used. The
 * caller holds a lock on it.
 *
 * Reading the predicate of an index folds constants, and so may call immutable
 * functions of the owner. They run with the privileges of the owner, and cannot use
 * the outbox: a message may be about to be opened.
 */
void
record_table_check(Relation table, const RecordMapping *mapping, RecordShape *shape)
{
	OwnerPrivileges before;

	owner_privileges_take(&before, table->rd_rel->relowner);
	owner_code_begin();
	PG_TRY();
	{
		check_as_owner(table, mapping, shape);
	}
	PG_FINALLY();
	{
		owner_code_end();
	}
	PG_END_TRY();
	owner_privileges_return(&before);
}

/* Checks with the privileges of the owner, because expressions of the table may be evaluated. */
static void
check_as_owner(Relation table, const RecordMapping *mapping, RecordShape *shape)
{
	if (mapping->problem)
		refuse_table(table, ERRCODE_INVALID_PARAMETER_VALUE, psprintf("%s.", mapping->problem),
					 "An administrator can name its columns with outbox_alter_endpoint().");
	check_kind(table);
	check_rules(table);
	memset(shape, 0, sizeof(*shape));
	shape->owner = table->rd_rel->relowner;
	check_columns(table, mapping, shape);
	check_other_columns(table, shape);
	find_unique_index(table, mapping, shape);
	check_cleanup_index(table, mapping, shape);
	check_triggers(table);
}

/*
 * Checks that it is a plain, permanent table: only that has one unique index
 * for all rows, and survives a crash.
 */
static void
check_kind(Relation table)
{
	switch (table->rd_rel->relkind)
	{
		case RELKIND_RELATION:
			break;
		case RELKIND_PARTITIONED_TABLE:
			refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a partitioned table.", NULL);
		case RELKIND_VIEW:
			refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a view.", NULL);
		case RELKIND_MATVIEW:
			refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a materialized view.", NULL);
		case RELKIND_FOREIGN_TABLE:
			refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a foreign table.", NULL);
		default:
			refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is not a table.", NULL);
	}
	if (IsCatalogRelation(table) || RelationGetNamespace(table) == get_namespace_oid(OUTBOX_SCHEMA, true))
		refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a system catalog, or belongs to the extension.", NULL);
	if (table->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a temporary table.", NULL);
	if (table->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is unlogged, so a crash would empty it.",
					 psprintf("Execute ALTER TABLE %s SET LOGGED.", name_of(table)));
	if (table->rd_rel->relispartition)
		refuse_table(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a partition of another table.", NULL);
}

/* Checks that no rule or policy can change the rows that we write, or hide them from us. */
static void
check_rules(Relation table)
{
	if (table->rd_rules != NULL)
		refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "It has rules.",
					 "Drop them, or use another table.");
	if (table->rd_rel->relforcerowsecurity)
		refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					 "Row-level security is forced for its owner.",
					 psprintf("Execute ALTER TABLE %s NO FORCE ROW LEVEL SECURITY.", name_of(table)));
}

/*
 * Checks that no trigger is deferrable: at the end of the transaction it would
 * not run with the owner's privileges.
 */
static void
check_triggers(Relation table)
{
	TriggerDesc *triggers = table->trigdesc;

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		if (triggers->triggers[i].tgdeferrable)
			refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						 psprintf("Its trigger or constraint \"%s\" is deferrable.",
								  OidIsValid(triggers->triggers[i].tgconstraint) ?
								  get_constraint_name(triggers->triggers[i].tgconstraint) :
								  triggers->triggers[i].tgname),
						 "Make it NOT DEFERRABLE, or drop it.");
	}
}

/* Finds the three columns that we use, and checks their types. */
static void
check_columns(Relation table, const RecordMapping *mapping, RecordShape *shape)
{
	Oid			type;

	shape->message_id = find_column(table, mapping->message_id, "text");
	shape->dispatched = find_column(table, mapping->dispatched, "boolean NOT NULL DEFAULT false");
	shape->dispatched_at = find_column(table, mapping->dispatched_at, "timestamptz");
	if (shape->message_id == shape->dispatched || shape->message_id == shape->dispatched_at ||
		shape->dispatched == shape->dispatched_at)
		refuse_table(table, ERRCODE_INVALID_PARAMETER_VALUE,
					 "record_columns names one column for two purposes.", NULL);

	type = TupleDescAttr(RelationGetDescr(table), shape->message_id - 1)->atttypid;
	check_type(table, shape->message_id, type == TEXTOID || type == VARCHAROID || type == UUIDOID,
			   "text, varchar or uuid");
	shape->id_type = type == UUIDOID ? UUIDOID : TEXTOID;

	type = TupleDescAttr(RelationGetDescr(table), shape->dispatched - 1)->atttypid;
	check_type(table, shape->dispatched, type == BOOLOID, "boolean");

	type = TupleDescAttr(RelationGetDescr(table), shape->dispatched_at - 1)->atttypid;
	check_type(table, shape->dispatched_at, type == TIMESTAMPTZOID || type == TIMESTAMPOID,
			   "timestamptz or timestamp");
	shape->zoned = type == TIMESTAMPTZOID;
}

/* Finds the column with that name, or refuses the table; type is for the hint. */
static AttrNumber
find_column(Relation table, const char *name, const char *type)
{
	AttrNumber	column = get_attnum(RelationGetRelid(table), name);

	if (column <= 0)
		refuse_table(table, ERRCODE_UNDEFINED_COLUMN,
					 psprintf("It has no column \"%s\".", name),
					 column < 0 ? NULL :
					 psprintf("Name another one in record_columns, or execute ALTER TABLE %s ADD COLUMN %s %s.",
							  name_of(table), quote_identifier(name), type));
	return column;
}

/* Checks that a column has the right type, and can be written. */
static void
check_type(Relation table, AttrNumber column, bool fits, const char *types)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(table), column - 1);
	const char *name = NameStr(attribute->attname);

	if (!fits)
		refuse_table(table, ERRCODE_DATATYPE_MISMATCH,
					 psprintf("Column \"%s\" is of type %s; it must be %s.", name,
							  format_type_be(attribute->atttypid), types), NULL);
	if (attribute->attgenerated != '\0' || attribute->attidentity != '\0')
		refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					 psprintf("Column \"%s\" is generated.", name), NULL);
}

/* Checks that all columns that we do not write may be NULL or have a default. */
static void
check_other_columns(Relation table, const RecordShape *shape)
{
	TupleDesc	columns = RelationGetDescr(table);

	for (int i = 0; i < columns->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);
		Oid			domain = domain_that_is_not_null(column->atttypid);
		const char *name = NameStr(column->attname);

		if (column->attisdropped || !(column->attnotnull || OidIsValid(domain)) || column->attnum == shape->message_id ||
			column->attnum == shape->dispatched || build_column_default(table, column->attnum) != NULL)
			continue;
		if (!column->attnotnull)
			refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						 psprintf("Column \"%s\" has no default, and its domain is NOT NULL.", name),
						 psprintf("Execute ALTER DOMAIN %s DROP NOT NULL.", format_type_be_qualified(domain)));
		refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					 psprintf("Column \"%s\" is NOT NULL and has no default.", name),
					 psprintf("Execute ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL.", name_of(table), quote_identifier(name)));
	}
}

/* Returns the domain that keeps a value of a type from being NULL; InvalidOid if none does. */
static Oid
domain_that_is_not_null(Oid type)
{
	Oid			found = InvalidOid;

	while (get_typtype(type) == TYPTYPE_DOMAIN && !OidIsValid(found))
	{
		HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
		Form_pg_type domain = (Form_pg_type) GETSTRUCT(tuple);

		if (domain->typnotnull)
			found = type;
		type = domain->typbasetype;
		ReleaseSysCache(tuple);
	}
	return found;
}

/* Finds the unique index by which ids are looked up. */
static void
find_unique_index(Relation table, const RecordMapping *mapping, RecordShape *shape)
{
	List	   *indexes = RelationGetIndexList(table);
	const char *unfit = NULL;
	char	   *detail;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (index->rd_index->indisunique && index->rd_index->indkey.values[0] == shape->message_id)
		{
			char	   *reason = unfit_to_be_unique(index, TupleDescAttr(RelationGetDescr(table), shape->message_id - 1)->attcollation);

			if (reason == NULL && !OidIsValid(shape->index))
				shape->index = RelationGetRelid(index);
			else if (reason)
				unfit = reason;
		}
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	if (OidIsValid(shape->index))
		return;
	detail = psprintf("It has no unique index on column \"%s\" alone that is immediate and valid and has no predicate.",
					  mapping->message_id);
	refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				 unfit ? psprintf("%s  %s", detail, unfit) : detail,
				 psprintf("Execute CREATE UNIQUE INDEX ON %s (%s).", name_of(table), quote_identifier(mapping->message_id)));
}

/*
 * Returns why an index does not ensure that ids are unique, as a sentence, or NULL.
 * Statements on the table compare with the collation of the column: by another one they
 * could take different ids for equal, and would read the whole table.
 */
static char *
unfit_to_be_unique(Relation index, Oid collation)
{
	const char *name = RelationGetRelationName(index);

	if (index->rd_index->indnkeyatts != 1)
		return psprintf("Index \"%s\" has more than one key column.", name);
	if (!index->rd_index->indimmediate)
		return psprintf("Index \"%s\" is deferrable.", name);
	if (!index->rd_index->indisvalid || !index->rd_index->indisready)
		return psprintf("Index \"%s\" is not valid.", name);
	if (RelationGetIndexPredicate(index) != NIL)
		return psprintf("Index \"%s\" has a predicate.", name);
	if (index->rd_rel->relam != BTREE_AM_OID)
		return psprintf("Index \"%s\" is not a B-tree.", name);
	if (index->rd_indcollation[0] != collation)
		return psprintf("Index \"%s\" does not have the collation of its column.", name);
	if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
		return psprintf("Index \"%s\" has a collation that treats different ids as equal.", name);
	if (!compares_bytes(index))
		return psprintf("Index \"%s\" has an operator class that treats different ids as equal.", name);
	return NULL;
}

/* Check whether an index compares all bytes; bpchar_ops ignores trailing spaces. */
static bool
compares_bytes(Relation index)
{
	Oid			type = index->rd_opcintype[0];
	RegProcedure equals = get_opcode(get_opfamily_member(index->rd_opfamily[0], type, type, BTEqualStrategyNumber));

	return equals == F_TEXTEQ || equals == F_UUID_EQ;
}

/* Checks that there is an index by which expired records can be found quickly. */
static void
check_cleanup_index(Relation table, const RecordMapping *mapping, const RecordShape *shape)
{
	List	   *indexes = RelationGetIndexList(table);
	bool		found = false;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		found |= helps_cleanup(index, shape);
		index_close(index, AccessShareLock);
	}
	if (!found)
		refuse_table(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					 psprintf("It has no index on column \"%s\", so expired records could not be found quickly.",
							  mapping->dispatched_at),
					 psprintf("Execute CREATE INDEX ON %s (%s) WHERE %s.", name_of(table),
							  quote_identifier(mapping->dispatched_at), quote_identifier(mapping->dispatched)));
	list_free(indexes);
}

/* Check whether an index finds what was dispatched before a time, oldest first. */
static bool
helps_cleanup(Relation index, const RecordShape *shape)
{
	const int16 *keys = index->rd_index->indkey.values;
	Var		   *dispatched = makeVar(1, shape->dispatched, BOOLOID, -1, InvalidOid, 0);

	if (!index->rd_index->indisvalid || index->rd_rel->relam != BTREE_AM_OID)
		return false;
	if (keys[0] == shape->dispatched && index->rd_index->indnkeyatts > 1)
		keys++;
	return keys[0] == shape->dispatched_at &&
		predicate_implied_by(RelationGetIndexPredicate(index), list_make1(dispatched), false);
}

/* Raises the error that says why a table cannot be used. */
static void
refuse_table(Relation table, int code, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("table \"%s\" cannot hold the records of an endpoint", name_of(table)),
			 errdetail("%s", detail),
			 hint ? errhint("%s", hint) : 0));
	pg_unreachable();
}

/* Returns the qualified name of a table, quoted for a statement. */
static const char *
name_of(Relation table)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
									  RelationGetRelationName(table));
}
