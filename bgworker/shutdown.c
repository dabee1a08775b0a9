/*
 * shutdown.c
 *		How the dispatcher ends: what it notes, who gets the lease, and what the launcher is told.
 *
 * Called by interrupts.c when another process has asked for it, and by dispatcher_setup.c
 * when SIGTERM has ended the process elsewhere. A process that is killed or that ends with
 * an error does none of this, so nothing may depend on it.
 *
 * It must never be called inside a transaction, except for shutdown_leave_amid_work(), and
 * must never wait for Redis.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "bgworker/connection/redis_session.h"
#include "bgworker/shutdown.h"
#include "bgworker/window/window_opening.h"
#include "src/ring/filter.h"

static bool extension_exists(void);

/*
 * Releases the lease and notes a position, at a clean stop, so that the process that
 * publishes next need not wait, nor send anything again. The position is NULL if no
 * transaction may begin now.
 */
void
shutdown_leave_in_order(Position *position)
{
	redis_session_release();
	if (position == NULL)
		return;

	/* This does not wait, and must not be interrupted. */
	HOLD_INTERRUPTS();
	window_opening_closing_at_once(position);
	RESUME_INTERRUPTS();
}

/*
 * Releases the lease of a process that SIGTERM has ended elsewhere than in
 * interrupts_attend(), usually in a transaction, which is rolled back only after this. No
 * position is noted: it may be that of the transaction. Batches may be under way. In a
 * single Redis they are run first, for they are on the same link; in a Redis Cluster the
 * fences keep them out if another server takes over.
 */
void
shutdown_leave_amid_work(void)
{
	redis_session_release();
}

/*
 * Ends the process because another one is to take its place at once. That one finds the
 * lease of its data directory: a server that waits must not take its absence for our end.
 */
void
shutdown_for_successor(Position *position)
{
	redis_session_close();
	shutdown_end(FAREWELL_ASKED, position);
}

/* Ends the process, and notes why, so that the launcher knows whether to start another one. */
void
shutdown_end(Farewell farewell, Position *position)
{
	DatabaseShared *shared = shared_mine();

	if (farewell == FAREWELL_ASKED)
		shutdown_leave_in_order(position);
	redis_session_release();

	/* A commit that still saw us running may have created the extension. */
	pg_atomic_write_u32(&shared->dispatcher, 0);
	if (farewell == FAREWELL_NO_EXTENSION && extension_exists())
		farewell = FAREWELL_ASKED;
	if (farewell == FAREWELL_NO_EXTENSION)
		filters_forget_all(shared);
	pg_atomic_write_u32(&shared->farewell, farewell);
	proc_exit(0);
}

/* Check whether the extension exists, without taking a lock on it. */
static bool
extension_exists(void)
{
	bool		there;

	StartTransactionCommand();
	there = OidIsValid(get_extension_oid("outbox", true));
	CommitTransactionCommand();
	return there;
}
