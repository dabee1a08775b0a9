/*
 * durable_commit.c
 *		Waits until the record of a duplicate is safe, and for the standby.
 *
 * durable_commit_wait() is called before a client is told that a message has been
 * processed, after which it will not deliver the message again: when
 * outbox_begin() returns false, and in a database that is a store for others.
 * Other sessions see a commit before it is on disk if synchronous_commit was
 * off, and before it is on the synchronous standby if that was local or the
 * wait was cancelled. If the server crashed then, or the standby took over,
 * both the record and the message would be lost.
 *
 * Why a record may be visible:
 *
 *	 plain COMMIT		on disk, and on the standby, before others see it
 *	 ... asynchronous	the commit log knows how far the WAL must be flushed
 *	 ... wait cancelled	on disk; the standby is asked for what is on disk now
 *	 COMMIT PREPARED	as a plain COMMIT
 *	 custom table		the version that was seen is the record, or was written
 *						after it: what makes that safe makes the record safe
 *	 history, store		compacted or propagated when all of it had been published;
 *						the dispatcher waits for disk and standby before that
 *	 after a crash		what was replayed is on disk; the standby is asked
 *
 * durable_commit_wait_for_standby() is called after a commit by a process that must do
 * other things while the standby does not have it yet (bgworker/process/transaction.c).
 *
 * These functions wait, so they must never be called while holding the lock on
 * a key.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/wait_event.h"

#include "src/claim/durable_commit.h"
#include "src/compat.h"
#include "src/table/commit_log.h"

#define LOOK_AGAIN_MS	20		/* whether the standby has it, at the latest */

static void flush_commit(TransactionId xid);
static XLogRecPtr end_of_wal(void);
static bool standby_has(XLogRecPtr lsn);

/*
 * Returns when the record that a lookup has found is as safe as a commit of
 * this session: on disk in any case, and on the synchronous standby if
 * synchronous_commit asks for that. Can be cancelled, with an error.
 */
void
durable_commit_wait(const RecordLook *look)
{
	TransactionId xid = look->xmin;

	if (look->fate != RECORD_COMMITTED)
		return;
	if (FullTransactionIdIsValid(look->tx))
	{
		/* What is too old for the commit log was flushed long ago. */
		if (!commit_log_has(look->tx))
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
	if (durable_commit_has_standby())
		(void) durable_commit_wait_for_standby(GetFlushRecPtr(NULL), NULL);
}

/* Check whether a commit of this session would wait for a synchronous standby now. */
bool
durable_commit_has_standby(void)
{
	return SyncRepRequested() && compat_has_sync_standbys();
}

/*
 * Returns true when the synchronous standby has the WAL up to `lsn`, or none is
 * configured any more. `attend` is called at least every LOOK_AGAIN_MS; if it
 * returns false the wait ends, and so does this. Without it the wait can be
 * cancelled, with an error. SyncRepWaitForLSN() would call nothing meanwhile, and
 * returns from a cancelled wait as if it had succeeded.
 */
bool
durable_commit_wait_for_standby(XLogRecPtr lsn, bool (*attend) (void))
{
	long		ms = 1;

	while (compat_has_sync_standbys() && !standby_has(lsn))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ms, WAIT_EVENT_SYNC_REP);
		ms = Min(2 * ms, LOOK_AGAIN_MS);
		ResetLatch(MyLatch);
		if (attend == NULL)
			CHECK_FOR_INTERRUPTS();
		else if (!attend())
			return false;
	}
	return true;
}

/* Flushes the WAL as far as this commit needs it, if at all. */
static void
flush_commit(TransactionId xid)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	/* A frozen version of a row does not tell its transaction. */
	if (!TransactionIdIsNormal(xid))
		lsn = end_of_wal();
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

/*
 * Returns where the WAL ends that was written until now. PostgreSQL tells where the
 * next record begins: at the beginning of a page behind its header, and a request to
 * flush as far as that is an error until there is such a record.
 */
static XLogRecPtr
end_of_wal(void)
{
	XLogRecPtr	next = GetXLogInsertRecPtr();
	uint64		header = XLogSegmentOffset(next, wal_segment_size) < XLOG_BLCKSZ ? SizeOfXLogLongPHD : SizeOfXLogShortPHD;

	return next % XLOG_BLCKSZ == header ? next - header : next;
}

/* Check whether the standby has written or flushed the WAL, as synchronous_commit asks. */
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
