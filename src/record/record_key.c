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

#include "src/lock_class.h"
#include "src/record/record_key.h"
#include "src/unique_id.h"

/* Makes the key of a record: of the UTF-8 forms, so that it survives a change of encoding. */
void
record_key_make(const char *endpoint, const char *msgid, pg_uuid_t *key)
{
	char	   *endpoint8 = pg_server_to_any(endpoint, strlen(endpoint), PG_UTF8);
	char	   *msgid8 = pg_server_to_any(msgid, strlen(msgid), PG_UTF8);

	unique_id_hash(endpoint8, strlen(endpoint8), msgid8, strlen(msgid8), key);
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
