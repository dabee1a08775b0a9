/*
 * sender_lock.c
 *		Tells the dispatcher whether calls of outbox_send() may rely on former settings.
 *
 * Called by send.c; and by interrupts.c and redis_session.c in the dispatcher.
 *
 * A call holds the lock from before it reads the settings of a destination until
 * Redis has answered. The dispatcher tells Redis of another number of partitions only
 * when no call is left that may have read the former number, because consumers read a
 * partition that is used no longer up to the end that it has at that moment.
 *
 * Each epoch has a lock of its own, so that calls that never cease to overlap do not
 * put off the change:
 *
 *	 1. the dispatcher has read new settings, which are committed, and begins an epoch
 *	 2. a call that gets the lock of an epoch that has ended lets it go and takes the
 *		next one; so it reads settings that are at least as new
 *	 3. when no process holds the locks of the epochs that have ended, Redis is told
 *
 * A process that dies loses its locks. A dispatcher that dies between 1 and 3 has a
 * successor that tells Redis when it connects, and does not wait: see
 * redis_session.c. No process ever waits here for longer than a moment.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "src/lock_class.h"
#include "src/sender_lock.h"
#include "src/shared.h"

static bool some_have_ended;	/* epochs, whose locks may be held yet */
static uint32 first_ended;		/* the first of them */

static LOCKTAG tag_of(uint32 epoch);

/* Takes the lock, to the end of the transaction; *held says which one it is. Without the library there is no dispatcher to tell. */
void
sender_lock_take(SenderLock *held)
{
	DatabaseShared *shared = shared_mine();
	uint32		epoch;

	*held = (SenderLock) {0};
	while (shared)
	{
		epoch = pg_atomic_read_u32(&shared->send_epoch);
		held->tag = tag_of(epoch);
		(void) LockAcquire(&held->tag, ShareLock, false, false);
		held->is_held = pg_atomic_read_u32(&shared->send_epoch) == epoch;
		if (held->is_held)
			return;
		LockRelease(&held->tag, ShareLock, false);
	}
}

/* Releases the lock. */
void
sender_lock_release(const SenderLock *held)
{
	if (held->is_held)
		LockRelease(&held->tag, ShareLock, false);
}

/* Begins an epoch; for the dispatcher, when it has read settings that calls may not know yet. */
void
sender_lock_begin_epoch(void)
{
	uint32		ended = pg_atomic_fetch_add_u32(&shared_mine()->send_epoch, 1);

	if (!some_have_ended)
		first_ended = ended;
	some_have_ended = true;
}

/* Check whether there are calls of epochs that have ended; for the dispatcher. */
bool
sender_lock_is_held_of_before(void)
{
	while (some_have_ended)
	{
		LOCKTAG		tag = tag_of(first_ended);

		if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			return true;
		LockRelease(&tag, ExclusiveLock, true);
		first_ended++;
		some_have_ended = first_ended != pg_atomic_read_u32(&shared_mine()->send_epoch);
	}
	return false;
}

/* Returns the tag of the lock of an epoch. */
static LOCKTAG
tag_of(uint32 epoch)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, epoch, 0, LOCK_CLASS_SENDERS);
	return tag;
}
