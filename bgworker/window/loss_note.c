/*
 * loss_note.c
 *		Notes what Redis has lost and is no longer in the log.
 *
 * Called by resume.c and backlog.c in an open transaction. A loss is kept in
 * outbox.loss, and shown in outbox.problems, until it is acknowledged.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/window/loss_note.h"

static void keep_loss(TimestampTz before);

/*
 * Notes that everything from before the end of a window may be missing in
 * Redis; returns when that window ended. Called by each connection until the
 * fence has moved.
 */
TimestampTz
loss_note_before(int64 number)
{
	Window		oldest;

	if (!window_row_at(number, &oldest) && !window_row_after(number, &oldest))
		elog(ERROR, "no window is left");
	keep_loss(oldest.opened_at);
	return oldest.opened_at;
}

/*
 * Notes that windows are missing which must be there: they were removed or
 * rolled back. All messages committed between the two windows that are left are
 * sent, some of them maybe again; messages from before the first one may be
 * lost. This is logged if it is news.
 */
void
loss_note_missing(const Window *before, const Window *next, bool is_news)
{
	if (is_news)
		ereport(LOG,
				(errmsg("outbox: windows before window %lld are missing; continuing after window %lld",
						(long long) next->number, (long long) before->number),
				 errdetail("Messages enqueued before %s may be missing from Redis, or may be there twice.",
						   timestamptz_to_str(next->opened_at))));
	keep_loss(next->opened_at);
}

/*
 * Notes that a window is kept, but not all that it held: a transaction that was
 * open while the log rotated has messages in an older segment, which has
 * expired. This is logged if it is news.
 */
void
loss_note_expired(const Window *window, bool is_news)
{
	if (is_news)
		ereport(LOG,
				(errmsg("outbox: some messages of window %lld are no longer in the log", (long long) window->number),
				 errdetail("Messages enqueued before %s that Redis has lost may not be sent again.",
						   timestamptz_to_str(window->opened_at))));
	keep_loss(window->opened_at);
}

/*
 * Notes in outbox.loss that messages enqueued before then may be missing in
 * Redis. Needs an open transaction.
 */
static void
keep_loss(TimestampTz before)
{
	(void) transaction_execute("INSERT INTO outbox.loss SELECT $1, clock_timestamp() "
							   "WHERE NOT EXISTS (SELECT FROM outbox.loss WHERE lost_before >= $1)",
							   1, (Oid[]) {TIMESTAMPTZOID}, (Datum[]) {TimestampTzGetDatum(before)}, NULL);
}
