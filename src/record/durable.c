/*
 * durable.c
 *		Waits until the record of a duplicate is safe, and for the standby.
 *
 * durable_wait() is called by whoever says "this message has been processed" to somebody who will
 * then forget the message: outbox_begin() when it returns false, and a database
 * that is a store for others. Others see a commit before it is on disk if
 * synchronous_commit was off, and before it is on the synchronous standby if that
 * was local or the wait was cancelled. If the server crashed then, or the standby
 * took over, both would be gone: the record, and the message, which nobody would
 * deliver again.
 *
 * How a record may have come to be seen:
 *
 *	 plain COMMIT		on disk, and on the standby, before others see it
 *	 ... asynchronous	the commit log knows how far the WAL must be flushed
 *	 ... wait cancelled	on disk; the standby is asked for what is on disk now
 *	 COMMIT PREPARED	as a plain COMMIT
 *	 a custom record table		the version that was seen is the record, or was written
 *						after it: what makes that safe makes the record safe
 *	 history, store		compacted or propagated when all of it had been published;
 *						the dispatcher waits for disk and standby before that
 *	 after a crash		what was replayed is on disk; the standby is asked
 *
 * durable_wait_for_standby() is called by whoever has committed and must do other
 * things while the standby does not have it yet (bgworker/transaction.c).
 *
 * It must never be called with a lock on a key held: it waits.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/wait_event.h"

#include "src/compat.h"
#include "src/record/durable.h"

#define LOOK_AGAIN_MS	20		/* whether the standby has it, at the latest */

static void flush_commit(TransactionId xid);
static bool is_known_to_commit_log(FullTransactionId tx);
static bool standby_has(XLogRecPtr lsn);

/*
 * Returns when the record that a look has found is as safe as a commit of this
 * session's would be: on disk in any case, and on the synchronous standby if
 * synchronous_commit asks for that. Can be cancelled, with an error.
 */
void
durable_wait(const RecordLook *look)
{
	TransactionId xid = look->xmin;

	if (look->fate != RECORD_COMMITTED)
		return;
	if (FullTransactionIdIsValid(look->tx))
	{
		if (!is_known_to_commit_log(look->tx))
			return;
		xid = XidFromFullTransactionId(look->tx);
	}
	if (!TransactionIdIsValid(xid) || TransactionIdIsCurrentTransactionId(xid))
		return;
	flush_commit(xid);

	/*
	 * Where the commit is in the WAL is not known any more; it is before what
	 * is on disk now.
	 */
	if (durable_has_standby())
		durable_wait_for_standby(GetFlushRecPtr(NULL), NULL);
}

/* Check whether a commit of this session's would wait for a synchronous standby now. */
bool
durable_has_standby(void)
{
	return SyncRepRequested() && compat_has_sync_standbys();
}

/*
 * Returns when the synchronous standby has the WAL up to `lsn`, or none is
 * configured any more. `attend` is called at least every LOOK_AGAIN_MS; without
 * one the wait can be cancelled, with an error. SyncRepWaitForLSN() would attend to
 * nothing, and return from a wait that was cancelled as if all were well.
 */
void
durable_wait_for_standby(XLogRecPtr lsn, void (*attend) (void))
{
	long		ms = 1;

	while (compat_has_sync_standbys() && !standby_has(lsn))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ms, WAIT_EVENT_SYNC_REP);
		ms = Min(2 * ms, LOOK_AGAIN_MS);
		ResetLatch(MyLatch);
		if (attend)
			attend();
		else
			CHECK_FOR_INTERRUPTS();
	}
}

/* Flushes the WAL as far as this commit needs it, if it does at all. */
static void
flush_commit(TransactionId xid)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	/* A frozen version of a row no longer tells; what froze it came later. */
	if (!TransactionIdIsNormal(xid))
		lsn = GetXLogInsertRecPtr();
	else
	{
		LWLockAcquire(XactTruncationLock, LW_SHARED);
		if (!TransactionIdPrecedes(xid, compat_oldest_clog_xid()))
			lsn = TransactionIdGetCommitLSN(xid);
		LWLockRelease(XactTruncationLock);
	}
	if (!XLogRecPtrIsInvalid(lsn) && XLogNeedsFlush(lsn))
		XLogFlush(lsn);
}

/* What is so old that its number may be another's now was flushed long ago. */
static bool
is_known_to_commit_log(FullTransactionId tx)
{
	return U64FromFullTransactionId(ReadNextFullTransactionId()) - U64FromFullTransactionId(tx) < MaxTransactionId / 2;
}

/* As far as synchronous_commit asks: written, or flushed. */
static bool
standby_has(XLogRecPtr lsn)
{
	int			mode = synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_WRITE ? SYNC_REP_WAIT_WRITE : SYNC_REP_WAIT_FLUSH;
	bool		has;

	LWLockAcquire(SyncRepLock, LW_SHARED);
	has = WalSndCtl->lsn[mode] >= lsn;
	LWLockRelease(SyncRepLock);
	return has;
}
