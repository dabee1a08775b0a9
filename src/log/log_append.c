/*
 * log_append.c
 *		Appends messages and receipts to the log.
 *
 * Called by sessions (enqueue.c, open_message.c, replay.c, restore.c), and by the
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

static void end_append(Relation table);

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
	end_append(table);
}

/* The same for a receipt, which gets the next id. */
void
log_append_receipt(const Receipt *receipt)
{
	int64		id = log_id_next();
	Relation	table = ring_open_current(RING_LOG, NULL);

	log_row_insert_receipt(table, id, receipt);
	end_append(table);
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
	pg_uuid_t	key;

	if (message->cause && message_key(message, &key))
		log_append_receipt(&(Receipt) {
			.at = GetCurrentTimestamp(), .key = key, .msgid = message->cause
		});
}

/* Closes the segment, and has the dispatcher woken at commit. */
static void
end_append(Relation table)
{
	KILL_POINT("message_written");
	table_close(table, NoLock);
	wakeup_at_commit();
}
