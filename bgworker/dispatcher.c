/*
 * dispatcher.c
 *		The process that publishes what a database commits.
 *
 * The launcher starts one for each database that has the extension. Its loop:
 * open a window, publish it, clean up, wait. All state that counts is in the
 * tables and in the fence: the process may be killed at any line, and its
 * successor continues from there.
 *
 * It must never hold a transaction open while it waits, nor wait without
 * calling interrupts_attend(), which obeys shutdown, new settings and commands
 * that need the database.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/redis_state.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/due_messages.h"
#include "bgworker/defer/reload_pace.h"
#include "bgworker/dispatcher_setup.h"
#include "bgworker/housekeeping.h"
#include "bgworker/interrupts.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/process/process.h"
#include "bgworker/process/report.h"
#include "bgworker/process/transaction.h"
#include "bgworker/propagate/propagation.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/publish/publisher.h"
#include "bgworker/window/position.h"
#include "bgworker/window/window_opening.h"
#include "bgworker/window/window_pace.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/settings.h"
#include "src/shared.h"

#define TURN_MS				100 /* of sending, until other work has its turn */
#define TURN_ROUND_TRIPS	4	/* are added: at its end, one is waited for */
#define LOOK_AGAIN_MS		100 /* until messages are looked for although
								 * nobody told of any */

PGDLLEXPORT void outbox_dispatcher_main(Datum database);

static DatabaseShared *shared;
static Position position;
static uint32 wakeups_seen;		/* before work was last looked for */
static uint32 calls_seen;		/* likewise */
static uint32 wakeups_answered; /* those seen before the last look for
								 * messages */
static uint32 calls_answered;	/* likewise */
static TimestampTz last_look;	/* for messages */
static TimestampTz turn_ends;	/* of sending */

static void note_calls(void);
static bool dispatch(void);
static bool stand_by(void);
static void set_up_dispatcher(Oid database);
static bool may_send(void);
static bool look_for_messages(void);
static bool look_is_due(void);
static bool look_is_owed(void);
static void pause_between_windows(void);
static bool publish(void);
static bool spread(void);
static bool may_publish(void);
static bool connect_to_redis(void);
static bool is_other_work_due(void);
static bool open_meanwhile(void);
static bool open_window(void);
static bool propagate(void);
static void publish_meanwhile(void);
static void listen_for_commits(void);
static void wait_for_work(void);
static long ms_until_due(void);

/* Entry point; the argument is the oid of the database. */
void
outbox_dispatcher_main(Datum database)
{
	set_up_dispatcher(DatumGetObjectId(database));
	dispatcher_setup_load(&position);

	for (;;)
	{
		bool		busy;

		note_calls();
		interrupts_attend();
		if (interrupts_take_new_settings())
		{
			/* The password may have changed, or what certificates say. */
			if (outbox_dispatch && !redis_state_has_new_url())
				redis_session_close();
			else
				redis_session_release();
			redis_state_note_settings();
		}
		(void) interrupts_reload();
		busy = outbox_dispatch ? dispatch() : stand_by();
		interrupts_attend_to_refusal();
		if (!busy)
			wait_for_work();
	}
}

/* Notes how often this process was called by others: later calls keep it from sleeping. */
static void
note_calls(void)
{
	wakeups_seen = pg_atomic_read_u32(&shared->wakeups);
	calls_seen = pg_atomic_read_u32(&shared->calls);
}

/*
 * Does one turn: looks for messages, publishes, propagates, cleans up. Returns
 * whether there is more to do.
 */
static bool
dispatch(void)
{
	bool		busy;

	/* With the link comes the lease, which is renewed while a commit waits. */
	if (!redis_session_is_open())
		(void) may_publish();
	busy = look_for_messages();

	/* What was opened now may have been enqueued after such a change. */
	if (interrupts_reload())
		busy |= publish();
	busy |= propagate();
	busy |= housekeeping_run(&position, busy);
	return busy;
}

/*
 * Does one turn while outbox.dispatch is off. Returns whether there is more to
 * do. The transactions of housekeeping find out when the extension is dropped.
 */
static bool
stand_by(void)
{
	report_state(DISPATCHER_OFF);
	redis_state_note_off();
	problem_clear(PROBLEM_STORE);	/* nor are stores looked at */
	window_opening_closing_at_once(&position);
	propagation_attend(&position);
	return housekeeping_keep_rings(&position, false);
}

/* Connects to the database, and prepares everything that outlives a connection to Redis. */
static void
set_up_dispatcher(Oid database)
{
	shared = dispatcher_setup_connect(database);
	interrupts_init(&position);
	transaction_init(interrupts_attend_to_standby);
	redis_session_init(interrupts_attend);
	publisher_init(is_other_work_due, open_meanwhile);
	due_messages_init(lanes_are_blocked_for);
	window_pace_init();
	propagation_init(publish_meanwhile);
}

/* Check whether messages committed now could be sent at once. */
static bool
may_send(void)
{
	return outbox_dispatch && !destination_all_paused() && redis_state_may_send();
}

/* Opens a window if messages were committed. */
static bool
look_for_messages(void)
{
	bool		opened = false;

	if (!look_is_due())
		return false;
	last_look = clock_now();

	pause_between_windows();
	if (position_is_caught_up(&position) && redis_session_is_open() && !destination_all_paused())
		opened = due_messages_return(position_has_sent_all(&position));
	return open_window() || opened;
}

/*
 * Check whether messages should be looked for. While nothing can be sent, or older
 * messages are being sent, this is done only at intervals, so that there are neither
 * large windows nor too many.
 *
 * Otherwise there is no need to look again if no commit was counted since the last
 * look: what is counted now was so before the snapshot of that look, and a commit is
 * counted after others see it. What is not counted (a wake-up can get lost, see
 * wakeup.c) is found nevertheless, if a little later.
 */
static bool
look_is_due(void)
{
	if (!may_send() || !position_is_caught_up(&position))
		return clock_ms_until_next(last_look, outbox_poll_interval) <= 0;
	return look_is_owed() ||
		clock_ms_until_next(last_look, Min(outbox_poll_interval, LOOK_AGAIN_MS)) <= 0 ||
		due_messages_ms_until() <= 0;
}

/* Check whether this process has seen calls that no look for messages has followed. */
static bool
look_is_owed(void)
{
	return wakeups_seen != wakeups_answered || calls_seen != calls_answered;
}

/* Opens a window if messages were committed. A look that could not be begun answers no call. */
static bool
open_window(void)
{
	int64		before = position.opened.messages;
	bool		opened = window_opening_next(&position);

	if (!transaction_was_refused())
	{
		wakeups_answered = wakeups_seen;
		calls_answered = calls_seen;
	}
	if (!opened)
		return false;
	window_pace_note(position.opened.messages - before);
	return true;
}

/* Lets some time pass if the last window was opened only a moment ago. */
static void
pause_between_windows(void)
{
	long		ms = window_pace_ms();

	if (position.opened_at != 0 && clock_now() - position.opened_at < ms * 1000)
		process_pause(ms, OUTBOX_WAIT_DISPATCHER);
}

/*
 * Publishes the open windows, if Redis can be used, for a limited time, so that
 * a backlog does not delay other work. Returns whether anything was published.
 */
static bool
publish(void)
{
	bool		published = false;

	if (!may_publish() || !spread())
		return false;
	turn_ends = TimestampTzPlusMilliseconds(clock_now(), TURN_MS) + TURN_ROUND_TRIPS * redis_session_round_trip();
	while (!position_is_caught_up(&position) && !(published && is_other_work_due()))
	{
		Progress	progress;

		report_state(DISPATCHER_PUBLISHING);
		progress = publisher_publish_next(&position);
		if (progress == PUBLISH_FAILED)
		{
			redis_state_note_failure();
			return published;
		}
		published = true;

		/*
		 * If the link failed when everything had arrived, nothing is left
		 * that could show progress.
		 */
		if (publisher_makes_progress() || position_is_caught_up(&position))
			redis_state_note_success();
		if (progress == PUBLISHED_PART)
			break;
		KILL_POINT("window_advanced");
		if (position_is_caught_up(&position))
			due_messages_end_probes();
		ConditionVariableBroadcast(&shared->progress);
		interrupts_attend();
	}
	if (position_is_caught_up(&position))
		report_state(DISPATCHER_IDLE);
	return published;
}

/*
 * Has messages go to the streams that their destinations are to have, and spread over
 * as many partitions unless a part of a window was sent. Returns false if Redis cannot
 * be used.
 */
static bool
spread(void)
{
	if ((position.resume_after != 0 || redis_session_settle_partitions(&position)) && redis_session_settle_mapping(&position))
		return true;
	redis_state_note_failure();
	return false;
}

/* Check whether Redis can be used, which connects to it, and not everything is paused. */
static bool
may_publish(void)
{
	/*
	 * What is read again comes first: a slot may be lost again each time that
	 * it is freed.
	 */
	if (!position_goes_over_sent(&position) || destination_all_paused())
		redis_state_try_blocked();
	if (!redis_session_is_open() && !connect_to_redis())
		return false;
	if (!destination_all_paused())
		return true;
	report_state(DISPATCHER_PAUSED);
	problem_clear(PROBLEM_REDIS_DOWN);
	return false;
}

/*
 * Tries to connect, when the standby has what the fence will name. What could not be sent to
 * before may be sent to by this connection.
 */
static bool
connect_to_redis(void)
{
	(void) transaction_confirm();
	if (!redis_state_connect(&position))
		return false;
	due_messages_rejoin_all();
	if (position_is_caught_up(&position))
		due_messages_end_probes();
	return true;
}

/* Check whether other work is due before more is sent. */
static bool
is_other_work_due(void)
{
	return interrupts_have_new_settings() || interrupts_reload_is_due() || clock_now() >= turn_ends;
}

/*
 * Called while the answer of a distant Redis is waited for: opens a window if
 * messages were committed and the pause between windows is over. What is due has its turn
 * when all windows are sent, which under a steady load might never be.
 */
static bool
open_meanwhile(void)
{
	uint32		wakeups = pg_atomic_read_u32(&shared->wakeups);

	if (wakeups == wakeups_seen || clock_now() - position.opened_at < window_pace_ms() * 1000 || due_messages_await_turn())
		return false;
	wakeups_seen = wakeups;
	last_look = clock_now();
	return open_window();
}

/*
 * Propagates receipts. A commit during the wait for a store wakes us; where
 * there is no store nothing waits, and a latch set for it would only end the
 * next wait for Redis. Returns whether any were propagated.
 */
static bool
propagate(void)
{
	bool		propagated;

	if (!propagation_may_wait())
		return propagation_run(&position);
	listen_for_commits();
	propagated = propagation_run(&position);
	pg_atomic_write_u32(&shared->asleep, 0);
	return propagated;
}

/*
 * Called while propagation.c waits for a store: does everything except for
 * cleaning up. New settings are left to the main loop.
 */
static void
publish_meanwhile(void)
{
	pg_atomic_write_u32(&shared->asleep, 0);
	interrupts_attend();
	if (interrupts_have_new_settings() || !outbox_dispatch)
		return;
	wakeups_seen = pg_atomic_read_u32(&shared->wakeups);
	(void) look_for_messages();

	/* As in dispatch(). */
	if (interrupts_reload() && publish())
		SetLatch(MyLatch);		/* there may be more */
	propagation_attend(&position);
	redis_state_renew_lease();
	listen_for_commits();
}

/*
 * Makes commits set our latch from now on; those since the last look are in the
 * count. While nothing can be sent, commits need not wake us: what they left then
 * is owed a look when it can be sent again.
 */
static void
listen_for_commits(void)
{
	if (!may_send())
		return;
	(void) pg_atomic_exchange_u32(&shared->asleep, 1);
	if (pg_atomic_read_u32(&shared->wakeups) != wakeups_seen || (look_is_owed() && !transaction_was_refused()))
		SetLatch(MyLatch);
}

/* Sleeps until woken, or until something is due. */
static void
wait_for_work(void)
{
	/*
	 * Calls for anything but sending have a count of their own. What came
	 * amid the work may have used up its latch.
	 */
	if (pg_atomic_read_u32(&shared->calls) != calls_seen || interrupts_have_new_settings() || interrupts_reload_is_due())
		return;
	listen_for_commits();
	process_sleep(ms_until_due(), OUTBOX_WAIT_DISPATCHER);
	ResetLatch(MyLatch);
	pg_atomic_write_u32(&shared->asleep, 0);
}

/* Returns how long until something is due for which no other process wakes us. */
static long
ms_until_due(void)
{
	long		ms = Min(outbox_poll_interval, interrupts_ms_until_look());

	ms = Min(ms, reload_pace_ms_until());
	if (!outbox_dispatch)
		return Min(ms, supervision_ms_until_due());
	ms = Min(ms, redis_state_ms_until_due());
	ms = Min(ms, housekeeping_ms_until_due(&position));
	ms = Min(ms, propagation_ms_until_due(&position));
	if (position_is_caught_up(&position) && redis_session_is_open() && !destination_all_paused())
		ms = Min(ms, due_messages_ms_until());
	return ms;
}
