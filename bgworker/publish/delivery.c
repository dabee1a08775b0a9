/*
 * delivery.c
 *		Windows that are being published, and what Redis answers to their pages.
 *
 * Called by publisher.c, which makes the pages and sends them.
 *
 * Verdicts (batch_verdict.c): if all messages were added, publishing continues with
 * the next page. If one was refused, deferral.c takes it, together with all
 * messages of its batch that are refused for the same reason (refusals.c). The
 * batches sent behind it in its lane have failed the comparison of the fence; sending
 * is continued after the refused message, with one page at a time until one passes. A
 * batch that was refused as a whole is sent again without the messages that are to blame
 * (forbidden.c).
 * Any other verdict concerns the server or the link, which is then closed
 * (traffic.c).
 */
#include "postgres.h"

#include "bgworker/connection/torn_slots.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/defer/deferred_count.h"
#include "bgworker/publish/delivery.h"
#include "bgworker/publish/forbidden.h"
#include "bgworker/publish/refusals.h"
#include "bgworker/publish/suspects.h"
#include "src/kill_point.h"
#include "src/shared.h"

static bool receive(Delivery *delivery, Batch *batch, Verdict *verdict);
static bool defer_refused(Delivery *delivery, const Batch *batch, const Verdict *verdict);
static bool drain_behind(Delivery *delivery);
static bool drain_batch(Delivery *delivery, Batch *batch);
static bool clear_up(Delivery *delivery, RefusedRows *refusal);

/*
 * Notes that all rows before that one are in Redis, or deferred, or were left out. `settled` is
 * how many messages waited when the last window was looked at that is published
 * now; -1 = unknown.
 */
void
delivery_advance(const Delivery *delivery, int64 row, int64 settled)
{
	int64		sent = run_sent_upto(delivery->run, delivery->position->sent, row);

	if (sent > delivery->position->sent)
	{
		suspects_note_sent(sent);
		if (settled >= 0 && delivery->position->left_out == 0)
			deferred_count_settle(settled);
	}
	(void) position_advance(delivery->position, row);
}

/*
 * Waits for the verdicts on the oldest page under way, and acts on them. It is progress
 * when all of the page is answered: while one lane breaks the link, others may get
 * further each time.
 */
bool
delivery_follow_verdicts(Delivery *delivery)
{
	MessagePage *page = &delivery->under_way->pages[0];

	delivery->refused = false;
	while (page->answered < page->nbatches)
	{
		Batch	   *batch = &page->batches[page->answered];
		Verdict		verdict;

		if (!receive(delivery, batch, &verdict))
			return false;
		page->answered++;
		if (verdict.error[0] != '\0')
			return defer_refused(delivery, batch, &verdict);
	}
	suspects_note_progress();
	delivery_advance(delivery, page->next, page->settled);
	pages_under_way_remove_oldest(delivery->under_way);
	KILL_POINT("batch_done");
	return true;
}

/* Waits for the verdict on a batch. Its places of refused messages are valid until the next call. */
static bool
receive(Delivery *delivery, Batch *batch, Verdict *verdict)
{
	verdict->error[0] = '\0';
	verdict->refused = delivery->under_way->refused;
	if (!traffic_receive_verdict(batch->lane, verdict, batch->n))
	{
		if (batch_verdict_is_of_torn_slot(verdict->error))
			torn_slots_note_refusal(batch->lane->slot);
		return false;
	}
	pg_atomic_fetch_add_u64(&shared_mine()->sent, verdict->added);
	return true;
}

/*
 * Defers the message of a batch that was refused, with those behind it that are
 * refused for the same reason, and continues behind it. Other lanes leave out what
 * they have got.
 */
static bool
defer_refused(Delivery *delivery, const Batch *batch, const Verdict *verdict)
{
	KILL_POINT("refusal_read");
	if (verdict->added > 0)
		KILL_POINT("refusal_amid_batch_read");
	delivery->refused = true;
	refusals_clear();
	refusals_add(batch, delivery->run, verdict);
	if (!drain_behind(delivery))
		return false;
	KILL_POINT("batches_behind_drained");
	for (RefusedRows *refusal = refusals_first(); refusal; refusal = refusal->next)
	{
		if (refusal->is_unclear && !clear_up(delivery, refusal))
			return false;
	}
	suspects_note_progress();

	for (const RefusedRows *refusal = refusals_first(); refusal; refusal = refusal->next)
	{
		if (!delivery_defer_rows(delivery, refusal->rows, refusal->n, refusal->error))
			return false;
	}
	delivery->next = refusals_first_left();
	pages_under_way_clear(delivery->under_way);
	return true;
}

/* Receives the answers to all batches behind a refused message. */
static bool
drain_behind(Delivery *delivery)
{
	for (int i = 0; i < delivery->under_way->n; i++)
	{
		MessagePage *page = &delivery->under_way->pages[i];

		while (page->answered < page->nbatches)
		{
			if (!drain_batch(delivery, &page->batches[page->answered++]))
				return false;
		}
	}
	return true;
}

/* Receives the answer to one of them. In the lane of a refused message it was rejected. */
static bool
drain_batch(Delivery *delivery, Batch *batch)
{
	Verdict		verdict;

	if (refusals_include(batch->lane))
		return traffic_receive_moved(batch->lane);
	if (!receive(delivery, batch, &verdict))
		return false;
	if (verdict.error[0] != '\0')
		refusals_add(batch, delivery->run, &verdict);
	return true;
}

/*
 * Finds the messages to blame for a batch that was refused as a whole. None of it was
 * sent, so there must be another page even if other work is due.
 */
static bool
clear_up(Delivery *delivery, RefusedRows *refusal)
{
	delivery->begun = false;
	return forbidden_find(refusal, delivery->run);
}

/* Defers rows of the run. Returns false if the extension is being dropped; the link is then closed. */
bool
delivery_defer_rows(const Delivery *delivery, const int64 *rows, int n, const char *error)
{
	if (page_defer_rows(delivery->run, delivery->position->published, rows, n, error))
		return true;
	traffic_give_up();
	return false;
}
