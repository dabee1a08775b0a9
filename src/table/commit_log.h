/*
 * commit_log.h
 *		Which transactions the commit log of PostgreSQL still has.
 */
#ifndef OUTBOX_COMMIT_LOG_H
#define OUTBOX_COMMIT_LOG_H

#include "access/transam.h"

#include "src/compat.h"

/*
 * Check whether the commit log has a transaction. If not, all that is known of it is
 * what rows of it tell: asking would be an error, or be about a later transaction of the
 * same number. A caller that asks holds XactTruncationLock from before this until then.
 */
static inline bool
commit_log_has(FullTransactionId tx)
{
	return U64FromFullTransactionId(ReadNextFullTransactionId()) - U64FromFullTransactionId(tx) < MaxTransactionId / 2 &&
		!TransactionIdPrecedes(XidFromFullTransactionId(tx), compat_oldest_clog_xid());
}

#endif							/* OUTBOX_COMMIT_LOG_H */
