/*
 * record_lock.c
 *		The momentary lock on the key of a record.
 *
 * Called wherever a record is claimed or forgotten. The holder of the lock looks up
 * the key and writes it without interference. While holding it a process must wait
 * only for what takes no longer than a moment itself.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "src/lock_class.h"
#include "src/record/record_lock.h"

/* Takes the lock on a key; *tag is for record_lock_release(). */
void
record_lock_take(const pg_uuid_t *key, LOCKTAG *tag)
{
	uint32		halves[2];

	memcpy(halves, key->data, sizeof(halves));
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, halves[0], halves[1], LOCK_CLASS_KEY);
	(void) LockAcquire(tag, ExclusiveLock, false, false);
}

/* Releases the lock; an error does so, too. */
void
record_lock_release(const LOCKTAG *tag)
{
	LockRelease(tag, ExclusiveLock, false);
}
