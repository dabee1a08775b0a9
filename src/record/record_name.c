/*
 * record_name.c
 *		Names the record of a message.
 *
 * Called by session.c, wait.c and forget.c.
 */
#include "postgres.h"

#include "src/record/record_key.h"
#include "src/record/record_name.h"
#include "src/record/record_table.h"

/*
 * Names the record of a message; strings are copied into the current memory
 * context. Raises an error if the custom record table of the endpoint cannot be
 * used.
 */
void
record_name_make(RecordName *name, const Endpoint *endpoint, const char *msgid)
{
	name->endpoint = pstrdup(endpoint->name);
	name->msgid = OidIsValid(endpoint->mapping.table) ?
		record_table_canonical(endpoint, msgid) : pstrdup(msgid);

	/*
	 * A record that is still here counts as long as the store must know the
	 * id: only cleanup knows whether the store has lost it.
	 */
	name->retention = Max(endpoint->retention, endpoint->store_retention);
	record_mapping_copy(&name->mapping, &endpoint->mapping);
	name->dedup_store = endpoint->dedup_store ? pstrdup(endpoint->dedup_store) : NULL;
	record_key_make(name->endpoint, name->msgid, &name->key);
	name->is_appended = false;
	name->is_restored = false;
	name->has_receipt = OidIsValid(endpoint->mapping.table) || endpoint->dedup_store != NULL;
}

/* Frees the strings that record_name_make() has copied. */
void
record_name_free(RecordName *name)
{
	pfree(name->endpoint);
	pfree(name->msgid);
	record_mapping_free_copy(&name->mapping);
	if (name->dedup_store)
		pfree(name->dedup_store);
}
