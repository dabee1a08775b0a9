/*
 * record_key.c
 *		The key of a record, and the momentary lock on it.
 *
 * Called wherever a record is named, claimed or forgotten. The holder of the
 * lock looks up the key and writes it without interference. While holding it a
 * process must wait only for what takes no longer than a moment itself.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/resowner.h"

#include "src/lock_class.h"
#include "src/record/record_key.h"

static pg_cryptohash_ctx *hash_context(void);
static void hash_part(pg_cryptohash_ctx *context, const char *part);

/*
 * Makes the key of a record: the first 128 bits of the SHA-256 of both strings, each
 * preceded by its length, so that ('a', 'bc') and ('ab', 'c') differ; as UTF-8, so
 * that it survives a change of encoding.
 */
void
record_key_make(const char *endpoint, const char *msgid, pg_uuid_t *key)
{
	pg_cryptohash_ctx *context = hash_context();
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	if (pg_cryptohash_init(context) < 0)
		elog(ERROR, "could not hash: %s", pg_cryptohash_error(context));
	hash_part(context, endpoint);
	hash_part(context, msgid);
	if (pg_cryptohash_final(context, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not hash: %s", pg_cryptohash_error(context));
	memcpy(key->data, digest, UUID_LEN);
}

/* Takes the momentary lock on a key; *tag is for record_key_unlock(). */
void
record_key_lock(const pg_uuid_t *key, LOCKTAG *tag)
{
	uint32		halves[2];

	memcpy(halves, key->data, sizeof(halves));
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, halves[0], halves[1], LOCK_CLASS_KEY);
	(void) LockAcquire(tag, ExclusiveLock, false, false);
}

/* Releases the lock; an error does so, too. */
void
record_key_unlock(const LOCKTAG *tag)
{
	LockRelease(tag, ExclusiveLock, false);
}

/*
 * Returns the hash context, which is kept for the life of the backend, because making
 * one costs more than hashing: it has a resource owner of its own, so it is not freed
 * at the end of a transaction.
 */
static pg_cryptohash_ctx *
hash_context(void)
{
	static pg_cryptohash_ctx *context;

	if (context == NULL)
	{
		ResourceOwner caller = CurrentResourceOwner;

		CurrentResourceOwner = ResourceOwnerCreate(NULL, "outbox hash");
		context = pg_cryptohash_create(PG_SHA256);
		CurrentResourceOwner = caller;
		if (context == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of memory")));
	}
	return context;
}

/* Hashes a string as UTF-8, preceded by its length. */
static void
hash_part(pg_cryptohash_ctx *context, const char *part)
{
	char	   *part8 = pg_server_to_any(part, strlen(part), PG_UTF8);
	size_t		length = strlen(part8);
	uint32		prefix = pg_hton32((uint32) length);

	if (pg_cryptohash_update(context, (uint8 *) &prefix, sizeof(prefix)) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) part8, length) < 0)
		elog(ERROR, "could not hash: %s", pg_cryptohash_error(context));
}
