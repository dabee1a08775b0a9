/*
 * marking_progress.c
 *		How far marking has got in each custom record table, and which records were locked.
 *
 * Used by marking.c; kept in the memory of the bookkeeper. A table that no
 * endpoint has is removed.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/propagate/marking_progress.h"
#include "bgworker/propagate/targets.h"
#include "src/record/endpoint.h"

static MarkedTable *tables;		/* in TopMemoryContext */
static uint64 hash;				/* of these when they were listed */

static void add_table_of(const Endpoint *endpoint, void *arg);
static void forget_unused(void);

/* Returns the first of the list of all. */
MarkedTable *
marking_progress_first(void)
{
	return tables;
}

/* Forgets how far marking has got in a table; InvalidOid = in all. */
void
marking_progress_forget(Oid oid)
{
	for (MarkedTable *table = tables; table; table = table->next)
		table->wanted = OidIsValid(oid) && table->table != oid;
	forget_unused();
}

/*
 * Finds out which tables there are now; a new one begins after window
 * `start_at`. Returns whether any is new. Needs an open transaction.
 */
bool
marking_progress_list(int64 start_at)
{
	MarkedTable *before = tables;
	bool		any_is_new;

	for (MarkedTable *table = tables; table; table = table->next)
		table->wanted = false;
	hash = 0;
	endpoint_each(add_table_of, &start_at);
	any_is_new = tables != before;
	forget_unused();
	return any_is_new;
}

/* Returns the hash of the tables that were there then. */
uint64
marking_progress_hash(void)
{
	return hash;
}

/*
 * Moves a table, and those before it, to the end of the list, so that all get
 * their turn, even if many of them hang.
 */
void
marking_progress_put_last(Oid oid)
{
	MarkedTable *last = tables;
	MarkedTable *hung = tables;

	while (hung && hung->table != oid)
		hung = hung->next;
	if (hung == NULL || hung->next == NULL)
		return;
	while (last->next)
		last = last->next;
	last->next = tables;
	tables = hung->next;
	hung->next = NULL;
}

/* Adds the table of an endpoint, if it has one that is not in the list yet. */
static void
add_table_of(const Endpoint *endpoint, void *arg)
{
	MarkedTable *table = tables;

	if (!OidIsValid(endpoint->mapping.table))
		return;
	while (table && (table->table != endpoint->mapping.table || strcmp(table->endpoint, endpoint->name) != 0))
		table = table->next;
	if (table == NULL)
	{
		table = MemoryContextAllocZero(TopMemoryContext, sizeof(MarkedTable));
		table->endpoint = MemoryContextStrdup(TopMemoryContext, endpoint->name);
		table->table = endpoint->mapping.table;
		table->read_upto = table->marked = *(int64 *) arg;
		id_list_init(&table->page);
		id_list_init(&table->locked);
		table->next = tables;
		tables = table;
	}
	table->wanted = true;
	hash += target_hash(endpoint->name, "", endpoint->mapping.table);
}

/* Removes tables that no endpoint has. */
static void
forget_unused(void)
{
	for (MarkedTable **link = &tables; *link;)
	{
		MarkedTable *table = *link;

		if (table->wanted)
		{
			link = &table->next;
			continue;
		}
		*link = table->next;
		receipts_forget(&table->reader);
		id_list_free(&table->page);
		id_list_free(&table->locked);
		pfree(table->endpoint);
		pfree(table);
	}
}
