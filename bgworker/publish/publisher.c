/*
 * publisher.c
 *		Sends windows to Redis, batch by batch, and acts on every verdict.
 *
 * Called by the dispatcher. Each batch is one run of the script (publish.lua);
 * the next is made while one is under way. No transaction is open while we wait
 * for Redis.
 *
 * Verdicts (verdict.c): if all messages were added, publishing continues with
 * the next batch. If one was refused, deferral.c takes it, together with all
 * messages of its batch that are refused for the same reason. The batches sent
 * behind it have failed the comparison of the fence; sending is continued
 * after the refused message, with one batch at a time until one passes. Any
 * other verdict concerns the server or the link, which is then closed
 * (redis_session.c).
 *
 * A message that breaks the link gets no verdict. It is found by sending the
 * suspects one by one (suspects.c), and is deferred as if it had been refused.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/tally.h"
#include "bgworker/publish/backlog.h"
#include "bgworker/publish/batch.h"
#include "bgworker/publish/flight.h"
#include "bgworker/publish/publisher.h"
#include "bgworker/publish/redis_session.h"
#include "bgworker/publish/suspects.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/settings.h"
#include "src/shared.h"

#define DISTANT_US		4000	/* with a longer round trip, windows are
								 * opened while others are under way, */
#define LOOK_US			1000	/* as soon as messages have come: they are
								 * looked for at such intervals */

/* The windows that are being published. */
typedef struct Delivery
{
	Position   *position;
	Run		   *run;
	int64		next;			/* first row that is not yet in a batch */
	int			batch_size;		/* messages that the batches have room for;
								 * the setting may change meanwhile */
	bool		begun;			/* a batch was made */
	WindowPlace tried;			/* last message of the batch sent last; its
								 * window is 0 if none was */
	bool		refused;		/* a message of the previous batch was refused */
	Flight		flight;
} Delivery;

static bool (*is_other_work_due) (void);	/* if so, sending is interrupted */
static bool (*open_next_window) (void);

static void begin_delivery(Delivery *delivery);
static bool next_is_suspect(const Delivery *delivery);
static int	batches_allowed(const Delivery *delivery);
static bool may_send_another(const Delivery *delivery);
static bool must_stop(const Delivery *delivery);
static bool deliver(Delivery *delivery);
static bool provide_windows(const Delivery *delivery);
static void open_meanwhile(void);
static Progress end_delivery(Delivery *delivery);
static void advance(const Delivery *delivery, int64 row, int64 settled);
static void note_read(Delivery *delivery, int64 row);
static bool defer_culprit(const Delivery *delivery);
static bool send_batch(Delivery *delivery);
static bool confirm_page(Delivery *delivery);
static bool follow_verdict(Delivery *delivery);
static bool defer_refused(Delivery *delivery, const Verdict *verdict);
static bool drain_behind(Delivery *delivery);
static bool defer_rows(const Delivery *delivery, const int64 *rows, int n, const char *error);

/*
 * Prepares for use; called once, when the dispatcher starts.
 * `is_due` is called between two batches; it says whether other work is due.
 * `open_window` opens another window if messages have come, and says whether it
 * did.
 */
void
publisher_init(bool (*is_due) (void), bool (*open_window) (void))
{
	is_other_work_due = is_due;
	open_next_window = open_window;
	batch_init();
}

/* Check whether the link has worked since the last verdict. */
bool
publisher_makes_progress(void)
{
	return !suspects_have_strikes();
}

/*
 * Publishes the windows after position->sent, or at least one batch of them if
 * other work is due, and notes in the position how far it got.
 */
Progress
publisher_publish_next(Position *position)
{
	Delivery	delivery = {.position = position, .run = backlog_next_run(position)};

	if (delivery.run == NULL)
	{
		redis_session_give_up();
		return PUBLISH_FAILED;
	}
	if (delivery.run->rows.n == 0)
	{
		/*
		 * Receipts only. The fence must not stay at a window that will be
		 * removed.
		 */
		if (!redis_session_move_fence(delivery.run->last, &run_window(delivery.run, delivery.run->last)->uuid))
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
		if (!redis_session_knows_why())
			suspects_note_strike(delivery.tried);
		return PUBLISH_FAILED;
	}
	return end_delivery(&delivery);
}

/* Finds where in the run to continue. */
static void
begin_delivery(Delivery *delivery)
{
	Position   *position = delivery->position;

	delivery->next = run_first_after(delivery->run, (WindowPlace) {position->sent + 1, position->resume_after});
	delivery->batch_size = outbox_batch_size;
	flight_begin(&delivery->flight, delivery->batch_size);
}

/* Notes how far all is sent, when nothing is in flight, and moves the fence there if it lags behind. */
static Progress
end_delivery(Delivery *delivery)
{
	Position   *position = delivery->position;
	Run		   *run = delivery->run;
	bool		all = delivery->next == run->rows.n;
	int64		sent = run_sent_upto(run, position->sent, delivery->next);

	/* A window that was opened meanwhile and has no messages was in no batch. */
	(void) transaction_confirm();
	if (!all && run_place(run, delivery->next - 1).window > sent)
	{
		/*
		 * Amid a window, which the fence names as soon as one of its messages
		 * is added.
		 */
		advance(delivery, delivery->next, -1);
		position->resume_after = run_row(run, delivery->next - 1)->id;
		return PUBLISHED_PART;
	}
	KILL_POINT("window_sent");
	if (!redis_session_take_fence_along(sent, &run_window(run, sent)->uuid))
		return PUBLISH_FAILED;
	advance(delivery, delivery->next, tally_waiting());
	position_end_run(position);
	return all ? PUBLISHED_ALL : PUBLISHED_PART;
}

/*
 * Notes that all rows before that one are in Redis, or deferred. `settled` is
 * how many messages waited when the last window was looked at that is published
 * now; -1 = unknown.
 */
static void
advance(const Delivery *delivery, int64 row, int64 settled)
{
	int64		sent = run_sent_upto(delivery->run, delivery->position->sent, row);

	if (sent > delivery->position->sent)
	{
		suspects_note_sent(sent);
		if (settled >= 0)
			tally_settle(settled);
	}
	(void) position_advance(delivery->position, row);
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
 * Returns how many batches may be under way. One refusal is often followed by
 * others, and a batch sent behind a refused one is wasted. While the link fails
 * there are few, so that few messages become suspects.
 */
static int
batches_allowed(const Delivery *delivery)
{
	if (next_is_suspect(delivery) || delivery->refused)
		return 1;
	return flight_allowed(&delivery->flight, suspects_have_strikes() ? 0 : redis_session_round_trip());
}

/*
 * Check whether another batch may be sent now. If other work is due, one batch
 * is sent before it, so there is always progress.
 */
static bool
may_send_another(const Delivery *delivery)
{
	return delivery->next < delivery->run->rows.n &&
		delivery->flight.n < batches_allowed(delivery) &&
		!(delivery->begun && must_stop(delivery));
}

/* Check whether no more is to be sent for now: partitions change where a window ends. */
static bool
must_stop(const Delivery *delivery)
{
	return is_other_work_due() ||
		(destination_have_new_partitions() && run_window_ends(delivery->run, delivery->next - 1));
}

/* Sends batches and acts on their verdicts. When it returns true, no batch is under way. */
static bool
deliver(Delivery *delivery)
{
	do
	{
		while (may_send_another(delivery))
		{
			if (!send_batch(delivery))
				return false;
		}
		if (!provide_windows(delivery))
			return false;
		if (delivery->flight.n > 0 && !may_send_another(delivery) && !follow_verdict(delivery))
			return false;
	} while (delivery->flight.n > 0 || may_send_another(delivery));
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
	if (delivery->flight.n == 0 || delivery->next < delivery->run->rows.n || is_other_work_due())
		return true;
	if (!backlog_may_extend_run(delivery->position))
	{
		open_meanwhile();
		return true;
	}
	if (backlog_extend_run(delivery->position))
		return true;
	redis_session_give_up();
	return false;
}

/*
 * Opens the next window, which joins the run, if messages come before the answer
 * of a distant Redis.
 */
static void
open_meanwhile(void)
{
	TimestampTz now = clock_now();
	TimestampTz end = now + 2 * redis_session_round_trip();

	if (redis_session_round_trip() < DISTANT_US)
		return;
	while (now < end && !redis_session_await(now + LOOK_US) && !open_next_window())
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

	if (!suspects_culprit(&culprit))
		return true;
	row = run_first_after(delivery->run, (WindowPlace) {culprit.window, culprit.id - 1});
	if (row < delivery->next || row == delivery->run->rows.n || place_precedes(culprit, run_place(delivery->run, row)))
		return true;			/* it has arrived, or its window is not in
								 * this run */
	strlcpy(error, redis_session_error(), sizeof(error));
	suspects_clear();
	return defer_rows(delivery, &row, 1, error);
}

/* Makes the next batch and sends it, unless all of its messages were deferred. */
static bool
send_batch(Delivery *delivery)
{
	Batch	   *batch = &delivery->flight.batches[delivery->flight.n];

	delivery->begun = true;
	batch->size = next_is_suspect(delivery) ? 1 : delivery->batch_size;
	if (!batch_make(batch, redis_session_call(), redis_session_lane(), delivery->run, delivery->next,
					delivery->position->touched))
	{
		redis_session_give_up();
		return false;
	}
	note_read(delivery, batch->next);
	if (!transaction_confirm())
		return confirm_page(delivery);
	delivery->next = batch->next;
	if (batch->n == 0)
	{
		KILL_POINT("whole_batch_deferred");
		redis_session_attend();
		return true;
	}
	KILL_POINT("batch_made");
	delivery->tried = run_place(delivery->run, batch->rows[batch->n - 1]);
	if (!redis_session_send())
		return false;
	KILL_POINT("batch_sent");
	if (delivery->flight.n == 1)
		KILL_POINT("second_batch_sent");
	lane_expect(redis_session_lane(), batch->fence);
	flight_add(&delivery->flight);
	return true;
}

/*
 * Waits until the standby has what was deferred of a page. The batches in flight
 * come first: until they are answered the lease cannot be renewed. The page is
 * then made again, since one of them may have been refused.
 */
static bool
confirm_page(Delivery *delivery)
{
	while (delivery->flight.n > 0)
	{
		if (!follow_verdict(delivery))
			return false;
	}
	(void) transaction_confirm();
	return true;
}

/* Waits for the verdict on the oldest batch in flight, and acts on it. */
static bool
follow_verdict(Delivery *delivery)
{
	Verdict		verdict = {.refused = delivery->flight.rows_refused};

	if (!redis_session_receive(&verdict, delivery->flight.batches[0].n))
		return false;
	pg_atomic_fetch_add_u64(&shared_mine()->sent, verdict.added);
	suspects_note_progress();
	delivery->refused = verdict.error[0] != '\0';
	if (delivery->refused)
		return defer_refused(delivery, &verdict);
	advance(delivery, delivery->flight.batches[0].next, delivery->flight.batches[0].settled);
	flight_remove_oldest(&delivery->flight);
	KILL_POINT("batch_done");
	return true;
}

/*
 * Defers the message of the oldest batch that was refused, with those behind it
 * that are refused for the same reason, and continues behind it.
 */
static bool
defer_refused(Delivery *delivery, const Verdict *verdict)
{
	const Batch *batch = &delivery->flight.batches[0];
	char		fence[FENCE_BYTES];

	KILL_POINT("refusal_read");
	if (verdict->added > 0)
		KILL_POINT("refusal_amid_batch_read");
	if (!drain_behind(delivery))
		return false;
	KILL_POINT("batches_behind_drained");
	batch_fence_after(batch, redis_session_lane(), delivery->run, verdict->added, fence);
	lane_expect(redis_session_lane(), fence);

	for (int i = 0; i < verdict->nrefused; i++)
		delivery->flight.rows_refused[i] = batch->rows[verdict->refused[i]];
	if (!defer_rows(delivery, delivery->flight.rows_refused, verdict->nrefused, verdict->error))
		return false;
	delivery->next = delivery->flight.rows_refused[0] + 1;
	flight_clear(&delivery->flight);
	return true;
}

/* Receives the answers to the batches behind a refused message. */
static bool
drain_behind(Delivery *delivery)
{
	for (int i = 1; i < delivery->flight.n; i++)
	{
		if (!redis_session_receive_moved())
			return false;
	}
	return true;
}

/* Defers rows of the run. Returns false if the extension is being dropped; the link is then closed. */
static bool
defer_rows(const Delivery *delivery, const int64 *rows, int n, const char *error)
{
	if (batch_defer_rows(delivery->run, rows, n, error))
		return true;
	redis_session_give_up();
	return false;
}
