/*
 * tombstones.c
 *		Rows of messages that were deferred and have been returned to the log, or discarded.
 *
 * Called by page.c for each row of a window that may have been read before, and by
 * emptying.c. A row of outbox.deferred stays as a tombstone until the log segment of its
 * last original is emptied: a window that is read again is sent without the originals,
 * but with the row that was returned last. As long as that is not published, the tombstone
 * tells those who wait for the message that it is still to come.
 */
#include "postgres.h"

#include "catalog/pg_type.h"

#include "bgworker/defer/tombstones.h"
#include "bgworker/process/transaction.h"
#include "src/log/window_row.h"

/*
 * Check whether a row of the log that may have been read before must not be
 * sent, because it is deferred or was returned as another row. `gap` is kept
 * from row to row of a transaction, as long as nothing is deferred in it (all zero).
 * Needs an open transaction.
 */
bool
tombstones_hold(const Message *message, DeferredGap *gap)
{
	FullTransactionId returned_tx;

	return deferred_find_next(gap, message->id, &returned_tx) &&
		!FullTransactionIdEquals(returned_tx, message->tx);
}

/*
 * Removes the tombstones of a log segment that is being emptied. Bodies that
 * were still to be read from it are lost. A row that an administrator is changing is
 * not waited for: it keeps the name of a row that is gone, or stays as a tombstone,
 * until the segment is emptied the next time. So does one whose message was returned and is not
 * published yet, as where it waits behind others, or everything was paused since.
 */
void
tombstones_forget_segment(int segment)
{
	Window		published;

	(void) transaction_execute("UPDATE outbox.deferred SET log_tx = NULL WHERE ctid = ANY (ARRAY("
							   "SELECT ctid FROM outbox.deferred WHERE log_tx IS NOT NULL AND log_segment = $1 FOR NO KEY UPDATE SKIP LOCKED))",
							   1, (Oid[]) {INT4OID}, (Datum[]) {Int32GetDatum(segment)}, NULL);
	if (!window_row_published(&published))
		return;
	(void) transaction_execute("DELETE FROM outbox.deferred WHERE ctid = ANY (ARRAY("
							   "SELECT ctid FROM outbox.deferred WHERE state IN ('returned', 'discarded') AND log_segment = $1 "
							   "AND (state = 'discarded' OR pg_visible_in_snapshot(returned_tx, $2)) FOR UPDATE SKIP LOCKED))",
							   2, (Oid[]) {INT4OID, PG_SNAPSHOTOID},
							   (Datum[]) {Int32GetDatum(segment), PointerGetDatum(published.snapshot)}, NULL);
}
