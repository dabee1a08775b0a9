/*
 * endpoint_change.c
 *		Keeps changes of endpoints from being acted on before all sessions can know of them.
 *
 * Called as a trigger by what changes outbox.endpoint, and by endpoint.c for each row that it
 * reads.
 *
 * PostgreSQL shows others what was committed a moment before it tells them that their caches
 * are stale, and in that moment a process may be stopped. Whoever reads a row then looks for
 * ids, and writes them, in the place that it names, and whoever has read the former row, in
 * the former place: both would claim one id. With changes of tables that cannot happen,
 * because of their locks, which are released after others were told. So a transaction that
 * changes endpoints holds a lock to its end, and whoever reads a row that it has written
 * waits for that.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "src/lock_class.h"
#include "src/record/endpoint_change.h"
#include "src/shared.h"
#include "src/table/row_write.h"

static LOCKTAG tag_of(TransactionId xid);

PG_FUNCTION_INFO_V1(outbox_endpoint_changed);

/*
 * Trigger: the settings of endpoints have changed.
 *
 * Takes ExclusiveLock to the end of the transaction.
 */
Datum
outbox_endpoint_changed(PG_FUNCTION_ARGS)
{
	LOCKTAG		tag;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager",
						"outbox.endpoint_changed")));
	tag = tag_of(GetCurrentTransactionId());
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	return PointerGetDatum(NULL);
}

/*
 * Waits until the transaction that has written a committed row has told others, which takes no
 * longer than a moment: it has nothing else to do. The dispatcher claims nothing, and waits for no lock.
 */
void
endpoint_change_wait(TupleTableSlot *row)
{
	LOCKTAG		tag = tag_of(row_inserter(row));

	if (shared_is_dispatcher())
		return;
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);
}

/* Returns the tag of the lock of a transaction, or of a subtransaction of it. */
static LOCKTAG
tag_of(TransactionId xid)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, xid, 0, LOCK_CLASS_ENDPOINT);
	return tag;
}
