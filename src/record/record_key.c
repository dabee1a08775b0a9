/*
 * record_key.c
 *		The key of a record, and the momentary lock on it.
 *
 * Called wherever a record is named, claimed or forgotten. The holder of the
 * lock looks up the key and writes it without interference. While holding it a
 * process must wait only for what takes no longer than a moment itself.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"

#include "src/lock_class.h"
#include "src/record/record_key.h"
#include "src/sha256.h"

static void hash_part(const char *part);

/*
 * Makes the key of a record: the first 128 bits of the SHA-256 of both strings, each
 * preceded by its length, so that ('a', 'bc') and ('ab', 'c') differ; as UTF-8, so
 * that it survives a change of encoding.
 */
void
record_key_make(const char *endpoint, const char *msgid, pg_uuid_t *key)
{
	uint8		digest[SHA256_BYTES];

	sha256_begin();
	hash_part(endpoint);
	hash_part(msgid);
	sha256_end(digest);
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
