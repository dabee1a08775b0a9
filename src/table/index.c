/*
 * index.c
 *		Finds the index of one of our tables by the column that it is on.
 *
 * Called wherever one of our tables is read through an index, and by row_write.c.
 * Names and OIDs of indexes cannot be relied on: REINDEX CONCURRENTLY makes a
 * new index, swaps names and drops the old one, and an administrator may have
 * added an index. So an index is searched in the list of the table itself,
 * under a lock on the table: until that is released no index of the list can go
 * away. An index that is not complete (invalid, or with a predicate) or ordered
 * differently is never read.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/typcache.h"

#include "src/table/index.h"
#include "src/table/relations.h"

static Relation open_on(Relation table, AttrNumber column, LOCKMODE mode, bool to_end);
static Relation open_listed(Relation table, AttrNumber column, LOCKMODE mode, bool to_end);
static Relation open_if_complete(Relation table, Oid oid, AttrNumber column, LOCKMODE mode, bool to_end);
static bool is_complete_on(Relation table, Relation index, AttrNumber column);
static Oid	comparison_of(Oid type);

/*
 * Opens the index on a column to read it. The caller holds a lock on the table,
 * at least until it has closed the index. Raises 55000 if there is no such index.
 */
Relation
index_open_on(Relation table, AttrNumber column, LOCKMODE mode)
{
	return open_on(table, column, mode, false);
}

/* The same to write it: with RowExclusiveLock to the end of the transaction. Close with NoLock. */
Relation
index_open_to_write(Relation table, AttrNumber column)
{
	return open_on(table, column, RowExclusiveLock, true);
}

/* Check whether a table has exactly one index, counting those that are being built. */
bool
index_is_alone(Relation table)
{
	if (!table->rd_indexvalid)
		list_free(RelationGetIndexList(table));
	return list_length(table->rd_indexlist) == 1;
}

/*
 * It tries twice, because only locking an index may tell us that it was swapped
 * with another one, which was not valid yet when we passed it.
 */
static Relation
open_on(Relation table, AttrNumber column, LOCKMODE mode, bool to_end)
{
	Relation	index = open_listed(table, column, mode, to_end);

	if (index == NULL)
		index = open_listed(table, column, mode, to_end);
	if (index == NULL)
	{
		const char *name = NameStr(TupleDescAttr(RelationGetDescr(table), column - 1)->attname);

		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s.%s\" has no usable index on column \"%s\"",
						OUTBOX_SCHEMA, RelationGetRelationName(table), name),
				 errdetail("It was dropped, or is not valid."),
				 errhint("Execute REINDEX TABLE %s.%s, or CREATE INDEX ON %s.%s (%s).",
						 OUTBOX_SCHEMA, RelationGetRelationName(table),
						 OUTBOX_SCHEMA, RelationGetRelationName(table), name)));
	}
	return index;
}

/*
 * Opens the first index of the table's list that is complete on a column; NULL
 * if there is none. The list is copied because locking an index may replace it;
 * normally there is only one.
 */
static Relation
open_listed(Relation table, AttrNumber column, LOCKMODE mode, bool to_end)
{
	Relation	index = NULL;
	List	   *indexes;

	if (index_is_alone(table))
		return open_if_complete(table, linitial_oid(table->rd_indexlist), column, mode, to_end);
	indexes = RelationGetIndexList(table);
	for (int i = 0; i < list_length(indexes) && index == NULL; i++)
		index = open_if_complete(table, list_nth_oid(indexes, i), column, mode, to_end);
	list_free(indexes);
	return index;
}

/* Opens an index; returns NULL, without a lock on it, if it is not one that can be read. */
static Relation
open_if_complete(Relation table, Oid oid, AttrNumber column, LOCKMODE mode, bool to_end)
{
	bool		locked = to_end && relations_lock_to_end(oid, mode);
	Relation	index = index_open(oid, to_end ? NoLock : mode);

	if (is_complete_on(table, index, column))
		return index;
	index_close(index, to_end ? NoLock : mode);
	if (locked)
		relations_unlock_early(oid, mode);
	return NULL;
}

/* Check whether an index has all rows of the table, in the ascending order of a column. */
static bool
is_complete_on(Relation table, Relation index, AttrNumber column)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || !form->indisready || form->indnkeyatts != 1 ||
		form->indkey.values[0] != column || index->rd_rel->relam != BTREE_AM_OID ||
		(index->rd_indoption[0] & INDOPTION_DESC) != 0 ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;

	return index->rd_support[0] == comparison_of(TupleDescAttr(RelationGetDescr(table), column - 1)->atttypid);
}

/* Returns the function that compares in the default order of a type, and not in that of another operator class. */
static Oid
comparison_of(Oid type)
{
	switch (type)
	{
		case UUIDOID:
			return F_UUID_CMP;
		case XID8OID:
			return F_XID8CMP;
		default:
			return lookup_type_cache(type, TYPECACHE_CMP_PROC)->cmp_proc;
	}
}
