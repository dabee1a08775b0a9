/*
 * log_append.c
 *		Appends messages and receipts to the log.
 *
 * Called by sessions (enqueue.c, session.c, replay.c, restore.c), and by the
 * dispatcher for what it returns to the log. No row is ever updated or deleted.
 */
#include "postgres.h"

#include "access/table.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "src/kill_point.h"
#include "src/log/log_id.h"
#include "src/log/log_row.h"
#include "src/ring/ring.h"
#include "src/wakeup.h"

/*
 * Appends a message to the current segment, as part of the caller's
 * transaction, and has the dispatcher woken when that commits. message->tx is
 * ignored: it is always the caller's top-level transaction.
 *
 * Takes RowExclusiveLock on the segment to the end of the transaction.
 */
void
log_append(const Message *message)
{
	Relation	table = ring_open_current(RING_LOG, NULL);

	log_row_insert(table, message);
	KILL_POINT("message_written");
	table_close(table, NoLock);
	wakeup_at_commit();
}

/*
 * Appends a receipt: the endpoint has processed msgid, which must be propagated
 * to its custom record table or store. Part of the caller's transaction, like
 * log_append().
 */
void
log_append_receipt(const pg_uuid_t *key, const char *endpoint, const char *msgid)
{
	Message		receipt = {
		.id = log_id_next(),
		.at = GetCurrentTimestamp(),
		.has_key = true,
		.key = *key,
		.message_id = cstring_to_text(endpoint),
		.cause = cstring_to_text(msgid),
		.body = (bytea *) cstring_to_text("")
	};

	log_append(&receipt);
}

/*
 * Appends a receipt for a message that had been deferred and is now returned or
 * given up: its record is not marked before that. The reader of the receipt
 * finds out which endpoint it is for, and whether that has a custom record
 * table: until then the endpoint may be restored, or get back the table that it
 * had.
 */
void
log_append_receipt_of(const Message *message)
{
	if (message->has_key && message->cause)
		log_append_receipt(&message->key, "", text_to_cstring(message->cause));
}
