/*
 * replay.c
 *		outbox_replay(): sends messages again that have been sent before.
 *
 * Copies what the log retains, within outbox.replay_window or longer, to its
 * end, as part of the caller's transaction: the copies are ordinary messages
 * with the ids that consumers know.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/api/caller_check.h"
#include "src/compat.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/log_id.h"
#include "src/log/window_row.h"
#include "src/table/relations.h"
#include "src/table/row_scan.h"

/* What is to be sent again. */
typedef struct Wanted
{
	TimestampTz since;
	const text *dest;			/* NULL = all */
	const SnapshotValue *published;
} Wanted;

static int64 replay_segment(Oid table, const Wanted *wanted);
static bool is_to_replay(const Message *message, const Wanted *wanted);

PG_FUNCTION_INFO_V1(outbox_replay);

/* outbox_replay(since, dest) */
Datum
outbox_replay(PG_FUNCTION_ARGS)
{
	const Relations *relations = relations_enter();
	Wanted		wanted = {0};
	Window		published;
	Rings		rings;
	int64		replayed = 0;

	caller_check_can_write("outbox_replay()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("since must not be null")));
	wanted.since = PG_GETARG_TIMESTAMPTZ(0);
	wanted.dest = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	if (!window_row_published(&published))
		PG_RETURN_INT64(0);
	wanted.published = published.snapshot;

	rings_read(&rings);
	for (int n = 0; n < rings.ring[RING_LOG].nsegments; n++)
	{
		if (segment_is_live(&rings.ring[RING_LOG].segments[n]))
			replayed += replay_segment(relations->segments[RING_LOG][n].table, &wanted);
	}
	PG_RETURN_INT64(replayed);
}

/* Copies what is wanted of one segment. Our own copies are not published, so they are not found here. */
static int64
replay_segment(Oid table, const Wanted *wanted)
{
	MemoryContext per_row;
	MemoryContext caller;
	RowScan		scan;
	int64		replayed = 0;

	row_scan_begin(&scan, table, OWN_LOG);
	per_row = AllocSetContextCreate(CurrentMemoryContext, "outbox replay", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(per_row);
	while (row_scan_next(&scan))
	{
		Message		message;

		if (log_row_is_receipt(scan.row))
			continue;
		MemoryContextReset(per_row);
		log_row_message(scan.row, &message);
		if (!is_to_replay(&message, wanted))
			continue;
		message.id = log_id_next();
		message.has_key = false;	/* the copy belongs to no record */
		message.is_of_default = false;
		message.deliver_at = 0;
		message.stream = NULL;
		log_append(&message);
		replayed++;
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(per_row);
	row_scan_end(&scan);
	return replayed;
}

/*
 * Check whether a message is one of those to be sent again. What is pending comes
 * anyway; what is deferred comes later, or came as another row.
 */
static bool
is_to_replay(const Message *message, const Wanted *wanted)
{
	FullTransactionId returned_tx;
	int			attempts;

	if (message->at < wanted->since || !snapshot_value_sees(wanted->published, message->tx))
		return false;
	if (wanted->dest &&
		(VARSIZE_ANY_EXHDR(message->dest) != VARSIZE_ANY_EXHDR(wanted->dest) ||
		 memcmp(VARDATA_ANY(message->dest), VARDATA_ANY(wanted->dest), VARSIZE_ANY_EXHDR(wanted->dest)) != 0))
		return false;
	return !deferred_find(message->id, &returned_tx, &attempts) ||
		FullTransactionIdEquals(returned_tx, message->tx);
}
