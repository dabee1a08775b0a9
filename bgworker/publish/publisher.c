/*
 * publisher.c
 *		Sends windows to Redis, page by page, and acts on every verdict.
 *
 * Called by the dispatcher. A page (page.c) is a batch for each lane that it has
 * messages for, and a batch is one run of the script (publish.lua); the next page is
 * made while one is under way. What is answered, delivery.c acts on. No transaction is
 * open while we wait for Redis.
 *
 * A message that breaks the link gets no verdict. It is found by sending the
 * suspects one by one (suspects.c), and is deferred as if it had been refused.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/connection/fence_claims.h"
#include "bgworker/connection/fences.h"
#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/defer/deferred_count.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/process/transaction.h"
#include "bgworker/publish/delivery.h"
#include "bgworker/publish/publisher.h"
#include "bgworker/publish/suspects.h"
#include "bgworker/window/backlog.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/limits.h"
#include "src/settings.h"
#include "src/shared.h"

#define DISTANT_US		4000	/* with a longer round trip, windows are
								 * opened while others are under way, */
#define LOOK_US			1000	/* as soon as messages have come: they are
								 * looked for at such intervals */

#define CLUSTER_ROWS	4000	/* a page for many lanes has more rows, and
								 * more */
#define CLUSTER_BYTES	(8 * 1024 * 1024)	/* bytes, so that each lane gets
											 * several at once */

static bool (*is_other_work_due) (void);	/* if so, sending is interrupted */
static bool (*open_next_window) (void);
static const Lane *lane_tried;	/* of the message that was sent last */

static bool move_fences(Run *run);
static void begin_delivery(Delivery *delivery);
static bool next_is_suspect(const Delivery *delivery);
static int	pages_allowed(const Delivery *delivery);
static bool may_send_another(const Delivery *delivery);
static bool must_stop(const Delivery *delivery);
static bool deliver(Delivery *delivery);
static bool provide_windows(const Delivery *delivery);
static void open_meanwhile(const Delivery *delivery);
static Progress end_delivery(Delivery *delivery);
static void note_read(Delivery *delivery, int64 row);
static bool defer_culprit(const Delivery *delivery);
static bool send_page(Delivery *delivery);
static bool make_page(Delivery *delivery);
static bool send_batches(MessagePage *page);
static bool use_lanes(Delivery *delivery);
static bool confirm_page(Delivery *delivery);
static bool drain(Delivery *delivery);

/*
 * Prepares for use; called once, when the dispatcher starts.
 * `is_due` is called between two pages; it says whether other work is due.
 * `open_window` opens another window if messages have come, and says whether it
 * did.
 */
void
publisher_init(bool (*is_due) (void), bool (*open_window) (void))
{
	is_other_work_due = is_due;
	open_next_window = open_window;
	page_init();
}

/* Check whether the link has worked since the last verdict. */
bool
publisher_makes_progress(void)
{
	return !suspects_have_strikes();
}

/*
 * Publishes the windows after position->sent, or at least one page of them if
 * other work is due, and notes in the position how far it got.
 */
Progress
publisher_publish_next(Position *position)
{
	Delivery	delivery = {.position = position, .run = backlog_next_run(position)};

	if (delivery.run == NULL)
	{
		traffic_give_up();
		return PUBLISH_FAILED;
	}
	if (delivery.run->rows.n == 0)
	{
		/*
		 * Receipts only. The fence must not stay at a window that will be
		 * removed.
		 */
		if (!traffic_keep_lease() || !move_fences(delivery.run))
			return PUBLISH_FAILED;
		(void) position_advance(position, 0);
		position_end_run(position);
		return PUBLISHED_ALL;
	}
	begin_delivery(&delivery);
	if (!defer_culprit(&delivery))
		return PUBLISH_FAILED;
	if (!deliver(&delivery))
	{
		if (!traffic_knows_why())
			suspects_note_strike(delivery.tried);
		return PUBLISH_FAILED;
	}
	return end_delivery(&delivery);
}

/* Moves the fences to the end of a run. Where there are many of them, they may lag behind. */
static bool
move_fences(Run *run)
{
	const pg_uuid_t *uuid = &run_window(run, run->last)->uuid;

	return lanes_count() > 1 ? fences_take_along(run->last, uuid) : fences_move(run->last, uuid);
}

/* Finds where in the run to continue. */
static void
begin_delivery(Delivery *delivery)
{
	Position   *position = delivery->position;

	delivery->next = run_first_after(delivery->run, (WindowPlace) {position->sent + 1, position->resume_after});
	delivery->current = delivery->run->rows.n;
	delivery->batch_size = outbox_batch_size;
	delivery->under_way = pages_under_way_begin(delivery->batch_size);
}

/* Notes how far all is sent, when nothing is under way, and moves the fence there if it lags behind. */
static Progress
end_delivery(Delivery *delivery)
{
	Position   *position = delivery->position;
	Run		   *run = delivery->run;
	bool		all = delivery->next == run->rows.n;
	int64		sent = run_sent_upto(run, position->sent, delivery->next);

	/* A window that was opened meanwhile and has no messages was in no page. */
	(void) transaction_confirm();
	if (!all && run_place(run, delivery->next - 1).window > sent)
	{
		/*
		 * Amid a window, which the fence names as soon as one of its messages
		 * is added.
		 */
		delivery_advance(delivery, delivery->next, -1);
		position->resume_after = run_row(run, delivery->next - 1)->id;
		return PUBLISHED_PART;
	}
	KILL_POINT("window_sent");
	if (!fences_take_along(sent, &run_window(run, sent)->uuid))
		return PUBLISH_FAILED;
	delivery_advance(delivery, delivery->next, deferred_count_waiting());
	position_end_run(position);
	return all ? PUBLISHED_ALL : PUBLISHED_PART;
}

/* Notes that all rows before that one were read. They may have been deferred, so from now on that is looked up. */
static void
note_read(Delivery *delivery, int64 row)
{
	WindowPlace read = run_place(delivery->run, row - 1);

	if (place_precedes(delivery->position->touched, read))
		delivery->position->touched = read;
}

/* Check whether the link may have failed because of the next message. */
static bool
next_is_suspect(const Delivery *delivery)
{
	return delivery->next < delivery->run->rows.n &&
		suspects_include(run_place(delivery->run, delivery->next));
}

/*
 * Returns how many pages may be under way. One refusal is often followed by
 * others, and a page sent behind a refused one is wasted. While the link fails
 * there are few, so that few messages become suspects.
 */
static int
pages_allowed(const Delivery *delivery)
{
	if (next_is_suspect(delivery) || delivery->refused)
		return 1;
	return pages_under_way_allowed(delivery->under_way, suspects_have_strikes() ? 0 : traffic_round_trip());
}

/*
 * Check whether another page may be sent now. If other work is due, one page
 * is sent before it, so there is always progress; but nothing of windows that were opened
 * meanwhile, to which what is to be read again may apply.
 */
static bool
may_send_another(const Delivery *delivery)
{
	return delivery->next < delivery->run->rows.n &&
		delivery->under_way->n < pages_allowed(delivery) &&
		!((delivery->begun || delivery->next >= delivery->current) && must_stop(delivery));
}

/* Check whether no more is to be sent for now: partitions change where a window ends. */
static bool
must_stop(const Delivery *delivery)
{
	return is_other_work_due() ||
		(lanes_await_partitions() && run_window_ends(delivery->run, delivery->next - 1));
}

/* Sends pages and acts on their verdicts. When it returns true, none is under way. */
static bool
deliver(Delivery *delivery)
{
	do
	{
		while (may_send_another(delivery))
		{
			if (!send_page(delivery))
				return false;
		}
		if (!provide_windows(delivery))
			return false;
		if (delivery->under_way->n > 0 && !may_send_another(delivery) && !delivery_follow_verdicts(delivery))
			return false;
	} while (delivery->under_way->n > 0 || may_send_another(delivery));
	return true;
}

/*
 * Provides more windows if all others are under way: so Redis is busy while the
 * next ones are read, and a message need not wait for the answer to those
 * before it. Returns false if the extension is being dropped; the link is then
 * closed.
 */
static bool
provide_windows(const Delivery *delivery)
{
	if (delivery->under_way->n == 0 || delivery->next < delivery->run->rows.n || is_other_work_due())
		return true;
	if (!backlog_may_extend_run(delivery->position))
	{
		open_meanwhile(delivery);
		return true;
	}
	if (backlog_extend_run(delivery->position))
		return true;
	traffic_give_up();
	return false;
}

/*
 * Opens the next window, which joins the run, if messages come before the answer
 * of a distant Redis.
 */
static void
open_meanwhile(const Delivery *delivery)
{
	const MessagePage *oldest = &delivery->under_way->pages[0];

	TimestampTz now = clock_now();
	TimestampTz end = now + 2 * traffic_round_trip();

	if (traffic_round_trip() < DISTANT_US)
		return;
	while (now < end && !traffic_await(oldest->batches[oldest->answered].lane, now + LOOK_US) && !open_next_window())
		now = clock_now();
}

/*
 * Defers the message that breaks the link, if there is one, so that those
 * behind it can be sent. Returns false if the extension is being dropped.
 */
static bool
defer_culprit(const Delivery *delivery)
{
	WindowPlace culprit;
	char		error[LINK_ERROR_BYTES];
	int64		row;

	if (!suspects_find_culprit(&culprit))
		return true;
	if (lane_tried && !place_precedes(lane_tried->at, culprit))
		return true;			/* it has arrived; other lanes are behind it */
	row = run_first_after(delivery->run, (WindowPlace) {culprit.window, culprit.id - 1});
	if (row < delivery->next || row == delivery->run->rows.n || place_precedes(culprit, run_place(delivery->run, row)))
		return true;			/* it has arrived, or its window is not in
								 * this run */
	strlcpy(error, traffic_error(), sizeof(error));
	suspects_clear();
	return delivery_defer_rows(delivery, &row, 1, error);
}

/* Makes the next page and sends it, unless all of its messages were deferred. */
static bool
send_page(Delivery *delivery)
{
	MessagePage *page = &delivery->under_way->pages[delivery->under_way->n];

	if (!traffic_keep_lease() || !make_page(delivery))
		return false;
	delivery->begun = true;
	if (!transaction_confirm())
		return confirm_page(delivery);
	if (!redis_session_is_open())
		return false;			/* while the standby was waited for: none of
								 * these messages has been tried */
	if (lanes_wanted() > 0)
		return use_lanes(delivery);
	delivery->next = page->next;
	if (page->nbatches == 0)
	{
		KILL_POINT("whole_batch_deferred");
		redis_session_attend();
		return true;
	}
	KILL_POINT("batch_made");
	delivery->tried = run_place(delivery->run, page->last);
	if (!send_batches(page))
		return false;
	if (delivery->under_way->n == 1)
		KILL_POINT("second_batch_sent");
	pages_under_way_add(delivery->under_way);
	return true;
}

/* Makes the page behind those that are under way. Returns false if the extension is being dropped. */
static bool
make_page(Delivery *delivery)
{
	MessagePage *page = &delivery->under_way->pages[delivery->under_way->n];
	bool		is_clustered = traffic_is_clustered();
	PageSize	size = {
		.messages = next_is_suspect(delivery) ? 1 : delivery->batch_size,
		.rows = is_clustered ? Max(CLUSTER_ROWS, delivery->batch_size) : delivery->batch_size,
		.bytes = is_clustered ? CLUSTER_BYTES : BATCH_BYTES
	};

	/* Such a page may be sent although other work is due: may_send_another(). */
	if (!delivery->begun && delivery->next < delivery->current)
		size.rows = Min(size.rows, delivery->current - delivery->next);
	if (!page_make(page, size, traffic_script(), delivery->run, delivery->next, delivery->position))
	{
		/* Its first row may have been deferred, so it must not count as new. */
		note_read(delivery, delivery->next + 1);
		traffic_give_up();
		return false;
	}
	note_read(delivery, page->next);
	if (page->left_out > 0)
		position_leave_out(delivery->position, page->left_out);
	return true;
}

/* Sends the batches of a page. */
static bool
send_batches(MessagePage *page)
{
	for (int i = 0; i < page->nbatches; i++)
	{
		Batch	   *batch = &page->batches[i];

		lane_tried = batch->lane;
		if (!traffic_send(batch->lane, batch->command))
			return false;
		KILL_POINT("batch_sent");
		lane_expect(batch->lane, batch->fence, batch->to);
	}
	return true;
}

/*
 * Takes the lanes into use that a page has messages for and that were never used
 * before. The pages under way come first. The page is then made again: nothing of it
 * may be sent to any lane before that.
 */
static bool
use_lanes(Delivery *delivery)
{
	delivery->begun = false;
	return drain(delivery) && fence_claims_use_wanted(delivery->position);
}

/*
 * Waits until the standby has what was deferred of a page. The pages under way
 * come first: until they are answered the lease cannot be renewed. The page is
 * then made again, since one of them may have been refused.
 */
static bool
confirm_page(Delivery *delivery)
{
	if (!drain(delivery))
		return false;
	(void) transaction_confirm();
	return true;
}

/* Receives the answers to all pages under way. */
static bool
drain(Delivery *delivery)
{
	while (delivery->under_way->n > 0)
	{
		if (!delivery_follow_verdicts(delivery))
			return false;
	}
	return true;
}
