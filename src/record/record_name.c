/*
 * record_name.c
 *		Names the record of a message, and makes the key that it is found by.
 *
 * Called by open_message.c, wait.c and forget.c; for the key alone by all who have to
 * find a record. The key is on disk: how it is made must never change.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"

#include "src/record/record_name.h"
#include "src/record/record_table.h"
#include "src/record/sha256.h"

static void hash_part(const char *part);

/*
 * Names the record of a message; strings are copied into the current memory
 * context. Raises an error if the custom record table of the endpoint cannot be
 * used.
 */
void
record_name_make(RecordName *name, const Endpoint *endpoint, const char *msgid)
{
	name->endpoint = pstrdup(endpoint->name);
	record_mapping_copy(&name->mapping, &endpoint->mapping);
	name->dedup_store = endpoint->dedup_store ? pstrdup(endpoint->dedup_store) : NULL;
	name->retention = endpoint_memory(endpoint);
	name->has_receipt = OidIsValid(endpoint->mapping.table) || endpoint->dedup_store != NULL;

	/*
	 * Only now: this may call functions of the table's owner, which may have
	 * the endpoints read again.
	 */
	name->msgid = OidIsValid(name->mapping.table) ?
		record_table_canonical(name->endpoint, &name->mapping, msgid) : pstrdup(msgid);
	record_name_make_key(name->endpoint, name->msgid, &name->key);
	name->given = strcmp(name->msgid, msgid) == 0 ? NULL : pstrdup(msgid);
	name->is_appended = false;
	name->is_restored = false;
}

/*
 * Names the record that a message has by its id as it was given, in the ring and in a store:
 * from before the endpoint had a custom record table, which spells the id in another way.
 * Shares the strings. Returns false if it is the same name.
 */
bool
record_name_as_given(const RecordName *name, RecordName *given)
{
	if (name->given == NULL)
		return false;
	*given = *name;
	given->msgid = name->given;
	given->given = NULL;
	given->mapping.table = InvalidOid;
	record_name_make_key(given->endpoint, given->msgid, &given->key);
	return true;
}

/* Frees the strings that record_name_make() has copied. */
void
record_name_free(RecordName *name)
{
	pfree(name->endpoint);
	pfree(name->msgid);
	if (name->given)
		pfree(name->given);
	record_mapping_free_copy(&name->mapping);
	if (name->dedup_store)
		pfree(name->dedup_store);
}

/*
 * Makes the key of a record: the first 128 bits of the SHA-256 of both strings, each
 * preceded by its length, so that ('a', 'bc') and ('ab', 'c') differ; as UTF-8, so
 * that it survives a change of encoding.
 */
void
record_name_make_key(const char *endpoint, const char *msgid, pg_uuid_t *key)
{
	uint8		digest[SHA256_BYTES];

	sha256_begin();
	hash_part(endpoint);
	hash_part(msgid);
	sha256_end(digest);
	memcpy(key->data, digest, UUID_LEN);
}

/* Hashes a string as UTF-8, preceded by its length. */
static void
hash_part(const char *part)
{
	char	   *part8 = pg_server_to_any(part, strlen(part), PG_UTF8);
	size_t		length = strlen(part8);
	uint32		prefix = pg_hton32((uint32) length);

	sha256_add(&prefix, sizeof(prefix));
	sha256_add(part8, length);
}
