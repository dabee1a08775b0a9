/*
 * record_table_cache.c
 *		Remembers which custom record tables have been checked and have not changed since.
 *
 * Called by record_table.c. A table is checked before it is used for the first
 * time, and once after each change, which relcache_callback.c reports. The plan of
 * the INSERT is kept for as long. It names the schema of the table, and a schema that gets
 * another name changes none of its tables: so any change of a schema counts as one of all tables.
 */
#include "postgres.h"

#include "access/relation.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "src/owner_privileges.h"
#include "src/record/record_table_cache.h"
#include "src/table/relcache_callback.h"

static HTAB *known_tables;		/* by oid; NULL = empty */

static void check_again(KnownTable *entry, const RecordMapping *mapping, Relation table);
static void forget_tables(Oid relation);
static void schema_changed(Datum arg, int cache, uint32 hash);

/* Registers the invalidation callbacks; once, by _PG_init. */
void
record_table_cache_init(void)
{
	relcache_callback_add(forget_tables);
	CacheRegisterSyscacheCallback(NAMESPACEOID, schema_changed, (Datum) 0);
}

/*
 * Opens the table of an endpoint and returns what is known of it, valid until the
 * table is altered. Raises 42P01 if it was dropped, and the errors of record_table_check()
 * if it does not fit any more.
 */
KnownTable *
record_table_cache_open(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, Relation *table)
{
	KnownTable *entry;
	bool		found;

	/* A plan must not be freed while it is executed. */
	owner_code_refuse();
	*table = try_relation_open(mapping->table, mode);
	if (*table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("record table of endpoint \"%s\" does not exist", endpoint),
				 errhint("An administrator can name another one with outbox_alter_endpoint().")));

	if (known_tables == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(KnownTable)};

		known_tables = hash_create("outbox record tables", 8, &control, HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(known_tables, &mapping->table, HASH_ENTER, &found);
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

	/* A change while we look invalidates the entry again. */
	entry->valid = true;
	PG_TRY();
	{
		entry->context = AllocSetContextCreate(TopMemoryContext, "outbox record table", ALLOCSET_SMALL_SIZES);
		caller = MemoryContextSwitchTo(entry->context);
		record_mapping_copy(&entry->mapping, mapping);
		MemoryContextSwitchTo(caller);
		record_table_check(table, mapping, &entry->shape);
	}
	PG_CATCH();
	{
		entry->valid = false;
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* A RelationListener. */
static void
forget_tables(Oid relation)
{
	HASH_SEQ_STATUS scan;
	KnownTable *entry;

	if (known_tables == NULL)
		return;
	if (relation != InvalidOid)
	{
		entry = hash_search(known_tables, &relation, HASH_FIND, NULL);
		if (entry)
			entry->valid = false;
		return;
	}
	hash_seq_init(&scan, known_tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
		entry->valid = false;
}

/* A syscache callback. */
static void
schema_changed(Datum arg, int cache, uint32 hash)
{
	forget_tables(InvalidOid);
}
