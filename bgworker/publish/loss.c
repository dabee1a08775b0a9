/*
 * loss.c
 *		What Redis has lost and the log cannot make up for.
 *
 * Called by resume.c and position.c in an open transaction. It is kept in
 * outbox.loss until somebody acknowledges it: the view outbox.problems tells.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "bgworker/publish/loss.h"
#include "bgworker/transaction.h"

static void keep_loss(TimestampTz before);

/*
 * Notes that all from before the end of a window may be missing in Redis, until
 * somebody acknowledges that; returns when that was. Until the fence has moved
 * each connection comes here.
 */
TimestampTz
loss_note_before(int64 number)
{
	Window		oldest;

	if (!window_at(number, &oldest) && !window_after(number, &oldest))
		elog(ERROR, "no window is left");
	keep_loss(oldest.opened_at);
	return oldest.opened_at;
}

/*
 * Windows that must be there are not: something has removed them, or rolled them
 * back. All that was committed between the two that are kept is sent, maybe
 * again; what the first of them would have begun with is gone with it.
 */
void
loss_note_missing(const Window *before, const Window *next)
{
	ereport(LOG,
			(errmsg("outbox: windows before window %lld are missing; going on after window %lld",
					(long long) next->number, (long long) before->number),
			 errdetail("Messages enqueued before %s may be missing in Redis, or be there twice.",
					   timestamptz_to_str(next->opened_at))));
	keep_loss(next->opened_at);
}

/*
 * A window is kept, but not all that it held: a transaction that went on while the
 * log rotated has messages in an older segment, which has expired.
 */
void
loss_note_expired(const Window *window)
{
	ereport(LOG,
			(errmsg("outbox: not all messages of window %lld are in the log any more", (long long) window->number),
			 errdetail("What Redis has lost of the messages enqueued before %s may be missing there.",
					   timestamptz_to_str(window->opened_at))));
	keep_loss(window->opened_at);
}

/*
 * Keeps for status that what was enqueued before then may be missing in
 * Redis. Needs an open transaction.
 */
static void
keep_loss(TimestampTz before)
{
	(void) transaction_execute("INSERT INTO outbox.loss SELECT $1, clock_timestamp() "
							   "WHERE NOT EXISTS (SELECT FROM outbox.loss WHERE lost_before >= $1)",
							   1, (Oid[]) {TIMESTAMPTZOID}, (Datum[]) {TimestampTzGetDatum(before)}, NULL);
}
