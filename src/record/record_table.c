/*
 * record_table.c
 *		Looks records up in a custom record table, and claims them there.
 *
 * Called by record.c for endpoints that have a record_table. It gives the same
 * promises as record_ring.c, and by the same means: a momentary lock on the
 * key, a look with a dirty snapshot, and only then the insert. But this table
 * is not ours alone. The owner's own statements may insert an id at the same
 * moment, so the insert can still meet a duplicate: it runs in a
 * subtransaction, and then all begins again. And its rows are updated, so a
 * look can miss one that moves meanwhile. The claim also looks into the ring,
 * where the endpoint may have had its records before it got the table.
 *
 * Looks run no code of the user's. The insert does (triggers, defaults), with
 * the rights of the table's owner and no others; see owner.c.
 *
 * A table that was altered is checked again before it is used, once per change.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/uuid.h"

#include "src/compat.h"
#include "src/record/owner.h"
#include "src/record/record_ring.h"
#include "src/record/record_table.h"
#include "src/table/relations.h"

/* A table that was checked, and not changed since. */
typedef struct KnownTable
{
	Oid			oid;			/* the key in the hash table */
	bool		valid;
	MemoryContext context;		/* of what follows; NULL = nothing */
	RecordMapping mapping;
	RecordShape shape;
	SPIPlanPtr	insert;			/* or NULL */
} KnownTable;

static HTAB *known;				/* by oid; NULL = empty */
static bool owner_code_runs;	/* triggers of a record table may be running */

static KnownTable *open_known(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, Relation *table);
static void check_again(KnownTable *entry, const RecordMapping *mapping, Relation table);
static RecordLook look_into(Relation table, const RecordShape *shape, Datum id);
static int	scan_index(Relation table, const RecordShape *shape, Datum id, RecordLook *look);
static void start_scan(IndexScanDesc scan, Relation index, Datum id);
static void take_in(RecordLook *look, const RecordShape *shape, TupleTableSlot *row, const SnapshotData *dirty);
static TransactionId inserter_of(TupleTableSlot *row);
static bool is_at_rest(const RecordLook *look);
static ErrorData *insert(KnownTable *entry, const RecordName *name);
static void insert_as_owner(KnownTable *entry, const RecordName *name);
static void close_cursors(void);
static SPIPlanPtr insert_plan(KnownTable *entry);
static uint64 delete(KnownTable *entry, const RecordName *name);
static uint64 delete_as_owner(KnownTable *entry, const RecordName *name);
static void check_is_marked(const RecordName *name, const RecordLook *found);
static void refuse_to_keep(KnownTable *entry, const RecordName *name);
static bool is_duplicate(const ErrorData *error, const KnownTable *entry);
static Datum id_of(const RecordShape *shape, const char *msgid);
static void forget_on_change(Datum arg, Oid relation);

/* Registers the invalidation callback; once, by _PG_init. */
void
record_table_init(void)
{
	CacheRegisterRelcacheCallback(forget_on_change, (Datum) 0);
}

/*
 * An id as the endpoint's table spells it, palloc'd: a column of type uuid
 * takes several spellings for the same. Raises the errors of
 * record_table_open(), and 22P02 if the id is not of the column's type.
 */
char *
record_table_canonical(const Endpoint *endpoint, const char *msgid)
{
	RecordShape shape;

	table_close(record_table_open(endpoint->name, &endpoint->mapping, AccessShareLock, &shape),
				AccessShareLock);
	if (shape.id_type == TEXTOID)
		return pstrdup(msgid);
	return DatumGetCString(DirectFunctionCall1(uuid_out, id_of(&shape, msgid)));
}

/* Looks whether a message has a record, without waiting for another transaction. */
RecordLook
record_table_look(const RecordName *name)
{
	Relation	table;
	KnownTable *entry = open_known(name->endpoint, &name->mapping, AccessShareLock, &table);
	RecordLook	look = look_into(table, &entry->shape, id_of(&entry->shape, name->msgid));

	table_close(table, AccessShareLock);
	return look;
}

/*
 * Claims a message for this transaction, as record_ring_claim() does.
 *
 * Takes RowExclusiveLock on the table to the end of the transaction, before it
 * takes the lock on the key, so that nobody waits for the key because somebody
 * alters the table.
 */
RecordLook
record_table_claim(const RecordName *name)
{
	ErrorData  *refusal = NULL; /* somebody else's statement was faster */

	for (;;)
	{
		LOCKTAG		tag;
		Relation	table;
		KnownTable *entry;
		RecordLook	look;
		bool		inserted = false;

		lock_to_end(name->mapping.table, RowExclusiveLock);
		entry = open_known(name->endpoint, &name->mapping, NoLock, &table);
		record_ring_lock_key(&name->key, &tag);
		look = look_into(table, &entry->shape, id_of(&entry->shape, name->msgid));
		if (look.fate == RECORD_ABSENT)
			look = record_ring_look(name, NULL);
		if (look.fate == RECORD_ABSENT)
		{
			/* There is nothing that could have refused the last one: so it was no duplicate. */
			if (refusal)
				ReThrowError(refusal);
			record_ring_check_claim(name);
			refusal = insert(entry, name);
			inserted = refusal == NULL;
		}
		LockRelease(&tag, ExclusiveLock, false);
		table_close(table, NoLock);

		if (inserted || look.fate == RECORD_COMMITTED)
			return look;
		if (look.fate == RECORD_IN_PROGRESS)
			XactLockTableWait(look.xmin, NULL, NULL, XLTW_None);
	}
}

/*
 * Deletes the record of a message, as part of this transaction, and tells what it
 * was; false if there is none. Waits for a transaction that has it in progress, or
 * is about to delete it as well. Locks as a claim does.
 *
 * Raises 55000 while the record is not marked as dispatched: its receipt is still to
 * be propagated, and would mark the row of the next claim, whose messages may not be
 * sent by then.
 */
bool
record_table_forget(const RecordName *name, RecordLook *found)
{
	for (;;)
	{
		LOCKTAG		tag;
		Relation	table;
		KnownTable *entry = open_known(name->endpoint, &name->mapping, RowExclusiveLock, &table);
		bool		deleted = false;

		record_ring_lock_key(&name->key, &tag);
		*found = look_into(table, &entry->shape, id_of(&entry->shape, name->msgid));
		check_is_marked(name, found);
		if (is_at_rest(found) && !(deleted = delete(entry, name) > 0))
		{
			/* Somebody else may have deleted it since we looked. */
			*found = look_into(table, &entry->shape, id_of(&entry->shape, name->msgid));
			if (is_at_rest(found))
				refuse_to_keep(entry, name);
		}
		LockRelease(&tag, ExclusiveLock, false);
		table_close(table, NoLock);

		if (deleted || found->fate == RECORD_ABSENT)
			return deleted;
		XactLockTableWait(found->fate == RECORD_IN_PROGRESS ? found->xmin : found->xmax, NULL, NULL, XLTW_None);
	}
}

/*
 * Opens the table of an endpoint and tells what is known of it; for those that
 * do more with it than this file. Raises 42P01 if it was dropped, and the errors
 * of record_check() if it does not fit any more.
 */
Relation
record_table_open(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, RecordShape *shape)
{
	Relation	table;

	*shape = open_known(endpoint, mapping, mode, &table)->shape;
	return table;
}

/*
 * Notes that a statement is going to run code of the owner of a record table:
 * triggers, defaults, checks. That may use nothing of the outbox until
 * record_table_owner_code_ended(), which must be called after an error, too.
 */
void
record_table_owner_code_begins(void)
{
	owner_code_runs = true;
}

void
record_table_owner_code_ended(void)
{
	owner_code_runs = false;
}

/* Raises 55000 if it is code of the owner of a record table that calls. */
void
record_table_refuse_trigger(void)
{
	if (owner_code_runs)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a trigger of a record table must not use the outbox")));
}

/* The qualified name of a table, quoted for a statement. */
const char *
record_table_name(Oid table)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table));
}

static KnownTable *
open_known(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, Relation *table)
{
	KnownTable *entry;
	bool		found;

	/* The plan that is being executed must not be thrown away under it. */
	record_table_refuse_trigger();
	*table = try_relation_open(mapping->table, mode);
	if (*table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("record table of endpoint \"%s\" does not exist", endpoint),
				 errhint("An administrator can name another one with outbox_alter_endpoint().")));

	if (known == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(KnownTable)};

		known = hash_create("outbox record tables", 8, &control, HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(known, &mapping->table, HASH_ENTER, &found);
	if (!found)
		memset((char *) entry + sizeof(Oid), 0, sizeof(KnownTable) - sizeof(Oid));
	if (!entry->valid || !record_mapping_equal(&entry->mapping, mapping))
		check_again(entry, mapping, *table);
	return entry;
}

/* Checks a table that is new to us or has changed, and forgets its old plan. */
static void
check_again(KnownTable *entry, const RecordMapping *mapping, Relation table)
{
	MemoryContext caller;

	if (entry->insert)
		SPI_freeplan(entry->insert);
	entry->insert = NULL;
	if (entry->context)
		MemoryContextDelete(entry->context);
	entry->context = NULL;

	/* What changes while we look invalidates the entry again. */
	entry->valid = true;
	PG_TRY();
	{
		record_check(table, mapping, &entry->shape);
	}
	PG_CATCH();
	{
		entry->valid = false;
		PG_RE_THROW();
	}
	PG_END_TRY();

	entry->context = AllocSetContextCreate(TopMemoryContext, "outbox record table", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(entry->context);
	record_mapping_copy(&entry->mapping, mapping);
	MemoryContextSwitchTo(caller);
}

/*
 * Looks until it can be believed. Between the moment when the index is read and
 * that when its row is, the row may be updated: then its new version is in the
 * index by now, and one more entry is found than before.
 */
static RecordLook
look_into(Relation table, const RecordShape *shape, Datum id)
{
	RecordLook	look;
	int			before;
	int			entries = 0;

	do
	{
		before = entries;
		look = (RecordLook) {.fate = RECORD_ABSENT};
		entries = scan_index(table, shape, id, &look);
	} while (look.fate != RECORD_COMMITTED && entries != before);
	return look;
}

/* Looks once; returns how many entries of the index were followed. */
static int
scan_index(Relation table, const RecordShape *shape, Datum id, RecordLook *look)
{
	Relation	index = index_open(shape->index, AccessShareLock);
	TupleTableSlot *row = table_slot_create(table, NULL);
	int			entries = 0;
	SnapshotData dirty;
	IndexScanDesc scan;

	InitDirtySnapshot(dirty);
	scan = compat_index_beginscan(table, index, &dirty, 1);
	start_scan(scan, index, id);
	while (look->fate != RECORD_COMMITTED && index_getnext_tid(scan, ForwardScanDirection) != NULL)
	{
		entries++;
		if (index_fetch_heap(scan, row))
			take_in(look, shape, row, &dirty);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	index_close(index, AccessShareLock);
	return entries;
}

static void
start_scan(IndexScanDesc scan, Relation index, Datum id)
{
	Oid			type = index->rd_opcintype[0];
	Oid			equal = get_opfamily_member(index->rd_opfamily[0], type, type, BTEqualStrategyNumber);
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0], get_opcode(equal), id);
	index_rescan(scan, &key, 1, NULL, 0);
}

/*
 * Takes in one version of a row. If its inserter is in progress another version
 * may still be committed: that of a row which is being updated.
 */
static void
take_in(RecordLook *look, const RecordShape *shape, TupleTableSlot *row, const SnapshotData *dirty)
{
	bool		isnull;

	look->fate = TransactionIdIsValid(dirty->xmin) ? RECORD_IN_PROGRESS : RECORD_COMMITTED;
	look->xmin = TransactionIdIsValid(dirty->xmin) ? dirty->xmin : inserter_of(row);
	look->xmax = dirty->xmax;
	look->in_table = true;
	look->dispatched = DatumGetBool(slot_getattr(row, shape->dispatched, &isnull)) && !isnull;
}

/* The transaction that wrote a version; FrozenTransactionId if its number means nothing any more. */
static TransactionId
inserter_of(TupleTableSlot *row)
{
	bool		copied;
	HeapTuple	version = ExecFetchSlotHeapTuple(row, false, &copied);
	TransactionId xid = HeapTupleHeaderGetXmin(version->t_data);

	if (copied)
		heap_freetuple(version);
	return xid;
}

/* Whether a record is committed and nobody is changing it. */
static bool
is_at_rest(const RecordLook *look)
{
	return look->fate == RECORD_COMMITTED && !TransactionIdIsValid(look->xmax);
}

/*
 * Inserts the record. Returns NULL, or the error that says that the id is there:
 * a statement of somebody else's may have inserted it since we looked.
 */
static ErrorData *
insert(KnownTable *entry, const RecordName *name)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile refusal = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	record_table_owner_code_begins();
	PG_TRY();
	{
		insert_as_owner(entry, name);
		ReleaseCurrentSubTransaction();
		record_table_owner_code_ended();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		record_table_owner_code_ended();
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
		if (!is_duplicate(error, entry))
			ReThrowError(error);
		refusal = error;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return refusal;
}

static void
insert_as_owner(KnownTable *entry, const RecordName *name)
{
	Datum		id = id_of(&entry->shape, name->msgid);
	bool		isnull = false;
	bool		as_given;
	OwnerRights before;

	owner_rights_take(&before, entry->shape.owner);
	SPI_connect();
	if (SPI_execute_plan(insert_plan(entry), &id, NULL, false, 0) != SPI_OK_INSERT_RETURNING)
		elog(ERROR, "could not insert a record");
	as_given = SPI_processed == 1 &&
		DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)) && !isnull;
	close_cursors();
	SPI_finish();
	owner_rights_return(&before);

	if (!as_given)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("record of message \"%s\" of endpoint \"%s\" was not stored as it was given",
						name->msgid, name->endpoint),
				 errdetail("A trigger or the type of a column of table \"%s\" prevented it.",
						   get_rel_name(entry->oid))));
}

/*
 * Closes what triggers have left open, which are all cursors of our subtransaction:
 * the owner's statement would run with the rights of whoever fetches from it.
 */
static void
close_cursors(void)
{
	static SPIPlanPtr list;

	if (list == NULL)
	{
		list = SPI_prepare("SELECT name FROM pg_catalog.pg_cursor()", 0, NULL);
		if (list == NULL || SPI_keepplan(list) != 0)
			elog(ERROR, "could not prepare a list of the cursors");
	}
	if (SPI_execute_plan(list, NULL, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list the cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Portal		portal = GetPortalByName(SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));

		if (PortalIsValid(portal) && portal->createSubid == GetCurrentSubTransactionId() &&
			portal->status == PORTAL_READY && portal->portalPinned == false)
			SPI_cursor_close(portal);
	}
}

static SPIPlanPtr
insert_plan(KnownTable *entry)
{
	const char *id = quote_identifier(entry->mapping.message_id);
	char	   *sql;

	if (entry->insert)
		return entry->insert;
	sql = psprintf("INSERT INTO %s (%s, %s) VALUES ($1, false) RETURNING %s OPERATOR(pg_catalog.=) $1 AND NOT %s",
				   record_table_name(entry->oid),
				   id, quote_identifier(entry->mapping.dispatched),
				   id, quote_identifier(entry->mapping.dispatched));
	entry->insert = SPI_prepare(sql, 1, &entry->shape.id_type);
	if (entry->insert == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	SPI_keepplan(entry->insert);
	return entry->insert;
}

/*
 * Deletes a record that is there; returns how many rows that were. In a
 * subtransaction as the insert, so that cursors which a trigger leaves open are
 * known and closed.
 */
static uint64
delete(KnownTable *entry, const RecordName *name)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile uint64 deleted = 0;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	record_table_owner_code_begins();
	PG_TRY();
	{
		deleted = delete_as_owner(entry, name);
		ReleaseCurrentSubTransaction();
		record_table_owner_code_ended();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		record_table_owner_code_ended();
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
		ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return deleted;
}

static uint64
delete_as_owner(KnownTable *entry, const RecordName *name)
{
	Datum		id = id_of(&entry->shape, name->msgid);
	OwnerRights before;
	uint64		deleted;
	char	   *sql = psprintf("DELETE FROM ONLY %s WHERE %s OPERATOR(pg_catalog.=) $1",
							   record_table_name(entry->oid), quote_identifier(entry->mapping.message_id));

	owner_rights_take(&before, entry->shape.owner);
	SPI_connect();
	if (SPI_execute_with_args(sql, 1, &entry->shape.id_type, &id, NULL, false, 0) != SPI_OK_DELETE)
		elog(ERROR, "could not delete a record");
	deleted = SPI_processed;
	close_cursors();
	SPI_finish();
	owner_rights_return(&before);
	return deleted;
}

static void
check_is_marked(const RecordName *name, const RecordLook *found)
{
	if (is_at_rest(found) && !found->dispatched)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("record of message \"%s\" of endpoint \"%s\" is not yet marked as dispatched",
						name->msgid, name->endpoint),
				 errhint("It is marked when all that the message caused is in Redis. Try again then.")));
}

/* At REPEATABLE READ a record may be younger than the snapshot of the statement. */
static void
refuse_to_keep(KnownTable *entry, const RecordName *name)
{
	ereport(ERROR,
			(errcode(IsolationUsesXactSnapshot() ? ERRCODE_T_R_SERIALIZATION_FAILURE : ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			 errmsg("record of message \"%s\" of endpoint \"%s\" could not be deleted",
					name->msgid, name->endpoint),
			 errdetail("A concurrent transaction, or a trigger of table \"%s\", prevented it.",
					   get_rel_name(entry->oid))));
}

/*
 * Whether an error says that the id is there already: a violation of an index of
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

static Datum
id_of(const RecordShape *shape, const char *msgid)
{
	if (shape->id_type == UUIDOID)
		return DirectFunctionCall1(uuid_in, CStringGetDatum(msgid));
	return CStringGetTextDatum(msgid);
}

static void
forget_on_change(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS scan;
	KnownTable *entry;

	if (known == NULL)
		return;
	if (relation != InvalidOid)
	{
		entry = hash_search(known, &relation, HASH_FIND, NULL);
		if (entry)
			entry->valid = false;
		return;
	}
	hash_seq_init(&scan, known);
	while ((entry = hash_seq_search(&scan)) != NULL)
		entry->valid = false;
}
