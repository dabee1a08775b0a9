/*
 * record_table.c
 *		Claims records in a custom record table, and deletes them there.
 *
 * Called by claim.c and record_forget.c for endpoints that have a record_table,
 * and by all that name or open such a table. It gives the same promises as
 * record_ring.c, and by the same means: a momentary lock on the key, a look
 * (record_table_look.c), and only then the insert. But others write to this table, too.
 * The owner's own statements may insert an id at the same moment, so the insert can
 * still meet a duplicate: it runs in a subtransaction, and then all begins again.
 * The claim also looks into the ring, where the endpoint may have had its records
 * before it got the table.
 *
 * The insert may run user-defined code (triggers, defaults), with the privileges of the
 * table's owner and no others; see owner_privileges.c.
 *
 * A table that was altered is checked again before it is used, once per change.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "src/owner_privileges.h"
#include "src/record/record_lock.h"
#include "src/record/record_place.h"
#include "src/record/record_table.h"
#include "src/record/record_table_cache.h"
#include "src/record/record_table_look.h"
#include "src/table/relations.h"

/* A statement on a record, for owner_try(). */
typedef struct TableStatement
{
	KnownTable *table;
	const RecordName *name;
	uint64		rows;			/* that it has written as they were given */
} TableStatement;

static void table_claim_open(RecordClaim *claim);
static RecordLook table_claim_look(RecordClaim *claim);
static bool table_claim_insert(RecordClaim *claim);
static void table_claim_close(RecordClaim *claim);
static void run_insert(void *arg);
static SPIPlanPtr insert_plan(KnownTable *table);
static bool delete_record(KnownTable *table, const RecordName *name);
static void run_delete(void *arg);
static const char *is_of_table(const KnownTable *table);
static void check_is_marked(const RecordName *name, const RecordLook *found);
static void refuse_to_keep(KnownTable *entry, const RecordName *name);
static bool is_duplicate(const ErrorData *error, const KnownTable *entry);

const RecordPlace record_table = {
	.open = table_claim_open,
	.look = table_claim_look,
	.insert = table_claim_insert,
	.close = table_claim_close
};

/*
 * An id as the endpoint's table spells it, palloc'd: a column of type uuid
 * takes several spellings for the same. Raises the errors of
 * record_table_open(), and 22P02 if the id is not of the column's type.
 */
char *
record_table_canonical(const char *endpoint, const RecordMapping *mapping, const char *msgid)
{
	RecordShape shape;

	table_close(record_table_open(endpoint, mapping, AccessShareLock, &shape), AccessShareLock);
	return record_table_spell(&shape, msgid);
}

/* Returns an id as a table of that shape spells it. Raises an error if the id is not of the type of its column. */
char *
record_table_spell(const RecordShape *shape, const char *msgid)
{
	if (shape->id_type == TEXTOID)
		return pstrdup(msgid);
	return DatumGetCString(DirectFunctionCall1(uuid_out, record_table_look_id(shape, msgid)));
}

/* Looks up the record of a message, without waiting for another transaction. */
RecordLook
record_table_look(const RecordName *name)
{
	Relation	table;
	KnownTable *entry = record_table_cache_open(name->endpoint, &name->mapping, AccessShareLock, &table);
	RecordLook	look = record_table_look_in(table, &entry->shape, name->msgid);

	table_close(table, AccessShareLock);
	return look;
}

/*
 * Deletes the record of a message, as part of this transaction, and sets *found
 * to what it was. Returns false if there is none. Waits for a transaction that
 * is processing it, or is about to delete it as well. Takes the same locks as a
 * claim.
 *
 * Raises 55000 while the record is not marked as dispatched: its receipt is
 * still to be propagated, and would mark the row of the next claim, whose
 * messages may not be sent by then.
 */
bool
record_table_forget(const RecordName *name, RecordLook *found)
{
	for (;;)
	{
		LOCKTAG		tag;
		Relation	table;
		KnownTable *entry = record_table_cache_open(name->endpoint, &name->mapping, RowExclusiveLock, &table);
		bool		deleted = false;

		record_lock_take(&name->key, &tag);
		*found = record_table_look_in(table, &entry->shape, name->msgid);
		check_is_marked(name, found);
		if (record_table_look_is_at_rest(found) && !(deleted = delete_record(entry, name)))
		{
			/* Another transaction may have deleted it since we looked. */
			*found = record_table_look_in(table, &entry->shape, name->msgid);
			if (record_table_look_is_at_rest(found))
				refuse_to_keep(entry, name);
		}
		record_lock_release(&tag);
		table_close(table, NoLock);

		if (deleted || found->fate == RECORD_ABSENT)
			return deleted;
		XactLockTableWait(found->fate == RECORD_IN_PROGRESS ? found->xmin : found->xmax, NULL, NULL, XLTW_None);
	}
}

/*
 * Opens the table of an endpoint and tells what is known of it; for those that
 * do more with it than this file. Raises 42P01 if it was dropped, and the errors
 * of record_table_check() if it does not fit any more.
 */
Relation
record_table_open(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, RecordShape *shape)
{
	Relation	table;

	*shape = record_table_cache_open(endpoint, mapping, mode, &table)->shape;
	return table;
}

/* Returns the qualified name of a table, quoted for a statement. */
const char *
record_table_name(Oid table)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table));
}

/*
 * Takes RowExclusiveLock on the table to the end of the transaction, before the
 * lock on the key is taken, so that no transaction waits for the key because the
 * table is being altered.
 */
static void
table_claim_open(RecordClaim *claim)
{
	const RecordName *name = claim->name;

	(void) relations_lock_to_end(name->mapping.table, RowExclusiveLock);
	claim->known = record_table_cache_open(name->endpoint, &name->mapping, NoLock, &claim->table);
}

/* Looks with a dirty snapshot, as the ring does. */
static RecordLook
table_claim_look(RecordClaim *claim)
{
	const RecordShape *shape = &claim->known->shape;

	return record_table_look_in(claim->table, shape, claim->name->msgid);
}

/* Inserts the record. A statement of another transaction may have inserted the id since we looked. */
static bool
table_claim_insert(RecordClaim *claim)
{
	const RecordName *name = claim->name;
	TableStatement insertion = {claim->known, name};
	ErrorData  *error = owner_try(claim->known->shape.owner, run_insert, &insertion);

	if (error && !is_duplicate(error, claim->known))
		ReThrowError(error);
	claim->refusal = error;
	if (error)
		return false;
	if (insertion.rows != 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("record of message \"%s\" of endpoint \"%s\" was not stored as it was given",
						name->msgid, name->endpoint),
				 errdetail("A trigger or the type of a column of table \"%s\" prevented it, or another table has just taken its name.",
						   get_rel_name(claim->known->oid))));
	return true;
}

/* Keeps the lock on the table until the end of the transaction. */
static void
table_claim_close(RecordClaim *claim)
{
	table_close(claim->table, NoLock);
}

/* An OwnerStatement. */
static void
run_insert(void *arg)
{
	TableStatement *insertion = arg;
	Datum		id = record_table_look_id(&insertion->table->shape, insertion->name->msgid);
	bool		isnull = false;

	if (SPI_execute_plan(insert_plan(insertion->table), &id, NULL, false, 0) != SPI_OK_INSERT_RETURNING)
		elog(ERROR, "could not insert a record");
	if (SPI_processed == 1 &&
		DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)) && !isnull)
		insertion->rows = 1;
}

/* Returns the plan of the INSERT, which tells whether the row is as it was given. It is kept with the table. */
static SPIPlanPtr
insert_plan(KnownTable *entry)
{
	const char *id = quote_identifier(entry->mapping.message_id);
	const char *dispatched = quote_identifier(entry->mapping.dispatched);
	char	   *sql;

	if (entry->insert)
		return entry->insert;
	sql = psprintf("INSERT INTO %s (%s, %s) VALUES ($1, false) RETURNING %s OPERATOR(pg_catalog.=) $1 AND NOT %s AND %s",
				   record_table_name(entry->oid), id, dispatched, id, dispatched, is_of_table(entry));
	entry->insert = SPI_prepare(sql, 1, &entry->shape.id_type);
	if (entry->insert == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	SPI_keepplan(entry->insert);
	return entry->insert;
}

/*
 * Deletes a record. Returns false if it was not there. It runs as the owner, so
 * that cursors which a trigger leaves open are closed.
 */
static bool
delete_record(KnownTable *table, const RecordName *name)
{
	TableStatement deletion = {table, name};
	ErrorData  *error = owner_try(table->shape.owner, run_delete, &deletion);

	if (error)
		ReThrowError(error);
	return deletion.rows > 0;
}

/* An OwnerStatement. */
static void
run_delete(void *arg)
{
	TableStatement *deletion = arg;
	const KnownTable *table = deletion->table;
	Datum		id = record_table_look_id(&table->shape, deletion->name->msgid);
	Oid			type = table->shape.id_type;
	char	   *sql = psprintf("DELETE FROM ONLY %s WHERE %s OPERATOR(pg_catalog.=) $1 AND %s",
							   record_table_name(table->oid), quote_identifier(table->mapping.message_id),
							   is_of_table(table));

	if (SPI_execute_with_args(sql, 1, &type, &id, NULL, false, 0) != SPI_OK_DELETE)
		elog(ERROR, "could not delete a record");
	deletion->rows = SPI_processed;
}

/*
 * Returns the condition that a row is of this table, and not of one that has taken its name
 * since: our lock on a table keeps no schema from being renamed.
 */
static const char *
is_of_table(const KnownTable *table)
{
	return psprintf("tableoid OPERATOR(pg_catalog.=) '%u'::pg_catalog.oid", table->oid);
}

/* Raises 55000 if a record that no transaction is changing is not marked as dispatched. */
static void
check_is_marked(const RecordName *name, const RecordLook *found)
{
	if (record_table_look_is_at_rest(found) && !found->dispatched)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("record of message \"%s\" of endpoint \"%s\" is not yet marked as dispatched",
						name->msgid, name->endpoint),
				 errhint("It is marked when all that the message caused is in Redis.  Try again then.")));
}

/*
 * Raises the error of a DELETE that deleted nothing: 40001 where the record may be
 * younger than the snapshot of the statement, else 27000.
 */
static void
refuse_to_keep(KnownTable *entry, const RecordName *name)
{
	ereport(ERROR,
			(errcode(IsolationUsesXactSnapshot() ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			 errmsg("could not delete the record of message \"%s\" of endpoint \"%s\"",
					name->msgid, name->endpoint),
			 errdetail("A concurrent transaction, or a trigger of table \"%s\", prevented it.",
					   get_rel_name(entry->oid))));
}

/*
 * Check whether an error says that the id is there already: a violation of an index of
 * this table on the id. That may be another one than we look through, while it is
 * being rebuilt; and tables elsewhere have indexes of the same name.
 */
static bool
is_duplicate(const ErrorData *error, const KnownTable *entry)
{
	Oid			schema;
	HeapTuple	index;
	bool		found = false;

	if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION || !error->schema_name || !error->constraint_name)
		return false;
	schema = get_namespace_oid(error->schema_name, true);
	index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(get_relname_relid(error->constraint_name, schema)));
	if (HeapTupleIsValid(index))
	{
		Form_pg_index form = (Form_pg_index) GETSTRUCT(index);

		found = form->indrelid == entry->oid && form->indnkeyatts == 1 &&
			form->indkey.values[0] == entry->shape.message_id;
		ReleaseSysCache(index);
	}
	return found;
}
