/*
 * deferred_count.c
 *		How many messages are deferred, scheduled and dead, for the views.
 *
 * deferral.c and due_messages.c count in memory every change that they make to
 * outbox.deferred; the counts are read from the table whenever others may have
 * changed it. page.c and delivery.c ask how many messages wait.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/timestamp.h"

#include "bgworker/defer/blocked_destinations.h"
#include "bgworker/defer/deferred_count.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/held_by_dead.h"
#include "bgworker/process/report.h"
#include "bgworker/process/transaction.h"
#include "src/problem.h"

static TimestampTz scheduled_due;	/* when the next scheduled message is due;
									 * 0 = there is none */
static int64 scheduled;			/* how many are scheduled */
static int64 dead;
static int64 returned;			/* to the log, and not reported yet */
static int64 settled;			/* how many wait that are in no unpublished
								 * window */

static TimestampTz oldest_waiting(void);

/*
 * Counts scheduled and dead messages, and notes when the first one is due.
 * Needs an open transaction.
 */
void
deferred_count_load(void)
{
	HeapTuple	row;
	bool		isnull;
	Datum		due;

	SPI_connect();
	(void) transaction_query("SELECT (SELECT count(*) FROM outbox.deferred WHERE state = 'scheduled'), "
							 "(SELECT min(next_attempt) FROM outbox.deferred WHERE state = 'scheduled'), "
							 "(SELECT count(*) FROM outbox.deferred WHERE state = 'dead')", 0, NULL, NULL, NULL);
	row = SPI_tuptable->vals[0];
	scheduled = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
	due = SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull);
	scheduled_due = isnull ? 0 : DatumGetTimestampTz(due);
	dead = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 3, &isnull));
	SPI_finish();
	settled = deferred_count_waiting();
}

/* Counts a message that was scheduled. */
void
deferred_count_add_scheduled(TimestampTz due)
{
	scheduled++;
	if (scheduled_due == 0 || due < scheduled_due)
		scheduled_due = due;
}

/*
 * Notes that n scheduled messages were returned, and when the next one is due;
 * 0 = there is none.
 */
void
deferred_count_remove_scheduled(int64 n, TimestampTz next_due)
{
	scheduled -= n;
	scheduled_due = next_due;
}

/* Returns when the next scheduled message is due; 0 if there is none. */
TimestampTz
deferred_count_scheduled_due(void)
{
	return scheduled_due;
}

/* Counts a message that is dead from now on. */
void
deferred_count_add_dead(void)
{
	dead++;
}

/* Counts messages that have been returned to the log. */
void
deferred_count_add_returned(int64 n)
{
	returned += n;
}

/* Returns how many messages wait: for their destination, or held behind a dead one. */
int64
deferred_count_waiting(void)
{
	return blocked_waiting() + held_by_dead_count();
}

/*
 * Notes how many of the messages that wait are in windows that count as
 * published, because another one is about to.
 */
void
deferred_count_settle(int64 waiting)
{
	if (settled == waiting)
		return;
	settled = waiting;
	deferred_count_report(NULL);
}

/* Returns when the oldest of them was enqueued; 0 if there is none. */
static TimestampTz
oldest_waiting(void)
{
	TimestampTz blocked = blocked_oldest();
	TimestampTz held = held_by_dead_oldest();

	return blocked == 0 || (held != 0 && held < blocked) ? held : blocked;
}

/* Reports how many messages are deferred, and the newest reason if `error` is not NULL. */
void
deferred_count_report(const char *error)
{
	DeferredCounts counts = {
		.waiting = deferred_count_waiting(),
		.held = held_by_dead_count() - held_by_dead_locked(),
		.settled = Min(settled, deferred_count_waiting()),
		.oldest = oldest_waiting(),
		.returned = returned,
		.scheduled = scheduled,
		.dead = dead,
		.refused = blocked_refused(),
		.paused = blocked_paused()
	};

	returned = 0;
	report_deferred(&counts, error);
	problem_hold(PROBLEM_PAUSED, destination_all_paused());
	problem_hold(PROBLEM_DEAD, dead > 0);
	problem_hold(PROBLEM_DESTINATION, counts.waiting > counts.held);
}
