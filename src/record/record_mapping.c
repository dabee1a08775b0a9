/*
 * record_mapping.c
 *		Reads outbox.endpoint.record_columns: the meaning of columns.
 *
 * Called by endpoint.c and endpoint_admin.c; record_name.c and record_table_cache.c
 * copy and compare what was read. It knows names only; record_table_check.c checks
 * whether the table has such columns.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "src/record/record_mapping.h"

static char *read_columns(RecordMapping *mapping, Jsonb *columns);
static char **column_of(RecordMapping *mapping, const char *name);

/*
 * Reads a mapping such as {"message_id": "ref", "dispatched": "done"}; columns
 * that it does not name, or all if it is NULL, have the names that we use.
 * Strings are palloc'd. If it is invalid, mapping->problem says why: a mapping that
 * was written into the table by hand must not keep the other endpoints from being
 * read.
 */
void
record_mapping_read(RecordMapping *mapping, Oid table, Jsonb *columns)
{
	mapping->table = table;
	mapping->message_id = pstrdup("message_id");
	mapping->dispatched = pstrdup("dispatched");
	mapping->dispatched_at = pstrdup("dispatched_at");
	mapping->problem = columns ? read_columns(mapping, columns) : NULL;
}

/* Copies a mapping and its strings into the current context. */
void
record_mapping_copy(RecordMapping *copy, const RecordMapping *mapping)
{
	*copy = *mapping;
	if (!OidIsValid(mapping->table))
		return;
	copy->message_id = pstrdup(mapping->message_id);
	copy->dispatched = pstrdup(mapping->dispatched);
	copy->dispatched_at = pstrdup(mapping->dispatched_at);
	copy->problem = mapping->problem ? pstrdup(mapping->problem) : NULL;
}

/* Frees the strings of a copy. */
void
record_mapping_free_copy(RecordMapping *copy)
{
	if (!OidIsValid(copy->table))
		return;
	pfree(copy->message_id);
	pfree(copy->dispatched);
	pfree(copy->dispatched_at);
	if (copy->problem)
		pfree(copy->problem);
}

/* Check whether two mappings are equal. */
bool
record_mapping_equal(const RecordMapping *a, const RecordMapping *b)
{
	if (a->table != b->table || !OidIsValid(a->table))
		return a->table == b->table;
	return strcmp(a->message_id, b->message_id) == 0 &&
		strcmp(a->dispatched, b->dispatched) == 0 &&
		strcmp(a->dispatched_at, b->dispatched_at) == 0 &&
		(a->problem == NULL) == (b->problem == NULL);
}

/* Reads the names of columns. Returns what is wrong with them, palloc'd, or NULL. */
static char *
read_columns(RecordMapping *mapping, Jsonb *columns)
{
	JsonbIterator *iterator;
	JsonbValue	key;
	JsonbValue	value;

	if (!JB_ROOT_IS_OBJECT(columns))
		return pstrdup("record_columns must be a JSON object");
	iterator = JsonbIteratorInit(&columns->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		char	   *name = pnstrdup(key.val.string.val, key.val.string.len);
		char	  **column = column_of(mapping, name);

		(void) JsonbIteratorNext(&iterator, &value, true);
		if (column == NULL)
			return psprintf("record_columns has an invalid key \"%s\"", name);
		if (value.type != jbvString || value.val.string.len == 0)
			return psprintf("record_columns must give the name of a column for \"%s\"", name);
		*column = pnstrdup(value.val.string.val, value.val.string.len);
	}
	return NULL;
}

/* Returns where the name of a column is in a mapping; NULL if there is no such key. */
static char **
column_of(RecordMapping *mapping, const char *name)
{
	if (strcmp(name, "message_id") == 0)
		return &mapping->message_id;
	if (strcmp(name, "dispatched") == 0)
		return &mapping->dispatched;
	if (strcmp(name, "dispatched_at") == 0)
		return &mapping->dispatched_at;
	return NULL;
}
