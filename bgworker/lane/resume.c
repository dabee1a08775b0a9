/*
 * resume.c
 *		Finds where to resume publishing, by the fences in Redis.
 *
 * Called by redis_session.c on every connection. Publishing resumes where the lane is
 * that has got least far; each lane leaves out what its own fence covers (page.c).
 * A fence may be gone, or name a window that has been removed, or one that this
 * database never opened. In that case everything that is in the log is sent again, unless
 * outbox.redis_data_loss says otherwise; what may be missing is noted (loss_note.c).
 *
 * A fence that names a window that this database never opened shows that the database
 * has gone back in time, or that Redis has gone back to what another server had sent.
 * Its era tells which of them, and after which window to go on (era.c).
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/lane/era.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/lane/resume.h"
#include "bgworker/process/report.h"
#include "bgworker/window/loss_note.h"
#include "src/settings.h"

/* Why all that is in the log is sent again. */
typedef enum Replay
{
	FENCE_MISSING,
	FENCE_IN_OLDEST,
	FENCE_TOO_OLD,
	FENCE_OF_FORMER_PAST
} Replay;

/* What the last call has found in the tables: many lanes are at the same window. */
static int64 oldest_kept;
static int64 seen_number;		/* -1 = none; the first window is 0 */
static bool seen_is_kept;
static pg_uuid_t seen_uuid;

static void begin_look(void);
static WindowPlace place_of(Position *position, const char *fence_text, bool *kept);
static WindowPlace place_of_kept(const Fence *fence);
static WindowPlace place_of_unknown(Position *position, const Fence *fence);
static bool is_kept(const Fence *fence);
static bool is_inside_oldest(const Position *position, const Fence *fence);
static WindowPlace resume_without_fence(Position *position);
static WindowPlace resume_from_oldest(Position *position, Replay reason);
static int	errmsg_replay(Replay reason, int64 after);
static int64 oldest_to_replay(const Position *position);

/*
 * Sets the position, and where each lane is, to what the fences say that were read.
 * Called on every connect. A promoted standby may not know of a lane, and something may
 * have been left out for a lane that was blocked; so in a cluster windows are looked at
 * that this process has not sent, or that no table calls published if it has just
 * begun, wherever the fences are. What was left out for a lane that is still blocked is
 * not looked at, unless another server may have published meanwhile (an era begins, or a
 * fence is not what this process has set). Needs an open transaction.
 */
void
resume_position(Position *position, bool clustered, bool era_begins)
{
	int64		sent_before = position->sent;
	WindowPlace least = place_at_end(clustered ? lanes_take_freed(sent_before) : PG_INT64_MAX);
	bool		all_kept = true;

	begin_look();
	run_clear(&position->run);
	for (int i = 0; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);
		bool		kept;

		lane->at = place_of(position, lane->fence, &kept);
		all_kept &= kept;
		if (place_precedes(lane->at, least))
			least = lane->at;
	}
	if (!clustered || !all_kept || era_begins)
	{
		lanes_forget_left_out();
		if (clustered && place_precedes(place_at_end(position->published), least))
			least = place_at_end(position->published);
	}
	position->sent = least.id == PG_INT64_MAX ? least.window : least.window - 1;
	position->resume_after = least.id == PG_INT64_MAX ? 0 : least.id;
	position->left_out = lanes_first_left_out();
	position->sent_before = Max(position->sent_before, sent_before);
	position->published = Max(position->published, position_published(position, position->sent));
	if (all_kept)
		position->told &= ~NEWS_FENCE;
	position_note_published(position);
	if (position->left_out > 0)
		report_sent(position->sent);
	else
		report_nothing_left_out();
}

/*
 * Returns the last message that Redis has of a lane that is used for the first time, by
 * the value of its fence; the beginning if that names no window that is kept. Nothing up
 * to the window that was sent last was for this lane. Needs an open transaction.
 */
WindowPlace
resume_place_at_first_use(const Position *position, const char *fence_text)
{
	Fence		fence;

	begin_look();
	if (!fence_parse(fence_text, &fence))
		return (WindowPlace) {0};
	if (is_kept(&fence))
		return place_of_kept(&fence);
	if (fence.number >= oldest_kept)
		(void) era_went_on_after(fence.era, Min(position->sent, position->published));
	return (WindowPlace) {0};
}

/* Returns the last message that Redis has, by the value of a fence. *kept tells that the fence says so. */
static WindowPlace
place_of(Position *position, const char *fence_text, bool *kept)
{
	Fence		fence;

	*kept = false;
	if (!fence_parse(fence_text, &fence))
		return resume_without_fence(position);
	if (is_kept(&fence))
	{
		*kept = !is_inside_oldest(position, &fence);
		return *kept ? place_of_kept(&fence) :
			resume_from_oldest(position, FENCE_IN_OLDEST);
	}
	if (fence.number < oldest_kept)
		return resume_from_oldest(position, FENCE_TOO_OLD);
	return place_of_unknown(position, &fence);
}

/* The same for a fence that names a window that is kept. The oldest one counts as finished. */
static WindowPlace
place_of_kept(const Fence *fence)
{
	if (fence->number > oldest_kept && fence->last_id != FENCE_AT_END)
		return (WindowPlace) {.window = fence->number, .id = fence->last_id};
	return place_at_end(fence->number);
}

/* The same for a fence that names a window that this database never opened. */
static WindowPlace
place_of_unknown(Position *position, const Fence *fence)
{
	int64		went_on_after = era_went_on_after(fence->era, position->published);

	if (went_on_after < oldest_kept)
		return resume_from_oldest(position, FENCE_OF_FORMER_PAST);
	went_on_after = Max(went_on_after, position->first_window);
	if (position_is_news(position, NEWS_FENCE))
		ereport(LOG,
				(errmsg("outbox: the fence in Redis names window %lld, which this database never opened; continuing after window %lld",
						(long long) fence->number, (long long) went_on_after),
				 errdetail("The database was restored to an earlier time, a standby was promoted that lacked the newest transactions, or Redis has gone back to what another server had sent.")));
	return place_at_end(went_on_after);
}

/* Forgets what the last call has found. */
static void
begin_look(void)
{
	oldest_kept = window_row_oldest_number();
	seen_number = -1;
	seen_is_kept = false;
}

/* Check whether the window that the fence names is kept, and was opened by this database. */
static bool
is_kept(const Fence *fence)
{
	if (fence->number != seen_number)
	{
		Window		window;

		seen_number = fence->number;
		seen_is_kept = fence->number >= oldest_kept && window_row_fetch(fence->number, &window);
		if (seen_is_kept)
			seen_uuid = window.uuid;
	}
	return seen_is_kept && memcmp(&seen_uuid, &fence->uuid, sizeof(pg_uuid_t)) == 0;
}

/*
 * Check whether Redis has gone back to a message of the oldest window, of which
 * only the end is kept. Before others expired the fence was moved to the end of
 * a window (fences_settle()).
 */
static bool
is_inside_oldest(const Position *position, const Fence *fence)
{
	return fence->number == oldest_kept && fence->number > position->first_window &&
		fence->last_id != FENCE_AT_END;
}

/* Handles a Redis that is new, another one, or was emptied. */
static WindowPlace
resume_without_fence(Position *position)
{
	if (position->published <= position->first_window)
		return place_at_end(position->published);
	if (outbox_redis_data_loss != DATA_LOSS_RESUME)
		return resume_from_oldest(position, FENCE_MISSING);
	if (position_is_news(position, NEWS_FENCE))
		ereport(LOG, (errmsg("outbox: Redis has no fence of this database; continuing after window %lld because \"outbox.redis_data_loss\" is \"resume\"",
							 (long long) position->published)));
	return place_at_end(position->published);
}

/* Sends again everything that is in the log, and notes what is no longer there, if anything. */
static WindowPlace
resume_from_oldest(Position *position, Replay reason)
{
	int64		oldest = oldest_to_replay(position);
	TimestampTz lost_before = 0;

	if (oldest > position->first_window)
		lost_before = loss_note_before(oldest);
	if (position_is_news(position, NEWS_FENCE))
		ereport(LOG, (errmsg_replay(reason, oldest),
					  lost_before == 0 ? 0 :
					  errdetail("Messages enqueued before %s that Redis has lost are no longer in the log.",
								timestamptz_to_str(lost_before))));
	return place_at_end(oldest);
}

/* Does what errmsg() does: says why everything behind a window is sent again. */
static int
errmsg_replay(Replay reason, int64 after)
{
	switch (reason)
	{
		case FENCE_IN_OLDEST:
			return errmsg("outbox: the fence in Redis is inside the oldest window, of which only the end is kept; continuing after window %lld",
						  (long long) after);
		case FENCE_TOO_OLD:
			return errmsg("outbox: the fence in Redis is older than the windows that are kept; continuing after window %lld",
						  (long long) after);
		case FENCE_OF_FORMER_PAST:
			return errmsg("outbox: the fence in Redis is of an earlier era, whose end is no longer in the log; continuing after window %lld",
						  (long long) after);
		case FENCE_MISSING:
			break;
	}
	return errmsg("outbox: Redis has no fence of this database; sending again all that is in the log after window %lld",
				  (long long) after);
}

/* Returns the window after which everything that is kept would be sent again. */
static int64
oldest_to_replay(const Position *position)
{
	return Min(Max(oldest_kept, position->first_window), position->published);
}
