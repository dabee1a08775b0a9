/*
 * resume.c
 *		Finds where to resume publishing, by the fence in Redis.
 *
 * Called by redis_session.c on every connection. The fence may be gone, or name
 * a window that has been removed, or one that this database never opened. In
 * that case everything that is in the log is sent again, unless
 * outbox.redis_data_loss says otherwise; what may be missing is noted (loss_note.c).
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/publish/fence.h"
#include "bgworker/publish/loss_note.h"
#include "bgworker/publish/resume.h"
#include "src/settings.h"

static bool is_kept(const Fence *fence);
static bool is_inside_oldest(const Position *position, const Fence *fence);
static void resume_without_fence(Position *position);
static void resume_from_oldest(Position *position, const char *message);
static int64 oldest_to_replay(const Position *position);

/*
 * Sets the position to where the fence says. Called on every connect, with the
 * value of the fence. Needs an open transaction.
 */
void
resume_position(Position *position, const char *fence_text)
{
	Fence		fence;

	position->resume_after = 0;
	run_clear(&position->run);
	position->sent = position->published;

	if (!fence_parse(fence_text, &fence))
		resume_without_fence(position);
	else if (is_kept(&fence) && is_inside_oldest(position, &fence))
		resume_from_oldest(position, "outbox: the fence in Redis is inside the oldest window, of which only the end is kept; continuing after window %lld");
	else if (is_kept(&fence))
	{
		position->sent = fence.number;
		if (fence.number > window_oldest_number() && fence.last_id != FENCE_AT_END)
		{
			position->sent = fence.number - 1;
			position->resume_after = fence.last_id;
		}
		position->published = Max(position->published, position->sent);
		position->told &= ~NEWS_FENCE;
	}
	else if (fence.number < window_oldest_number())
		resume_from_oldest(position, "outbox: the fence in Redis is older than the windows that are kept; continuing after window %lld");
	else if (position_is_news(position, NEWS_FENCE))
		ereport(LOG,
				(errmsg("outbox: the fence in Redis names window %lld, which this database never opened; continuing after window %lld",
						(long long) fence.number, (long long) position->sent),
				 errdetail("The database was restored to an earlier time, or a standby was promoted that lacked the newest transactions.")));
	position_note_published(position);
}

/* Check whether the window that the fence names is kept, and was opened by this database. */
static bool
is_kept(const Fence *fence)
{
	Window		window;

	return fence->number >= window_oldest_number() && window_fetch(fence->number, &window) &&
		memcmp(&window.uuid, &fence->uuid, sizeof(pg_uuid_t)) == 0;
}

/*
 * Check whether Redis has gone back to a message of the oldest window, of which
 * only the end is kept. Before others expired the fence was moved to the end of
 * a window (redis_session_settle_fence()).
 */
static bool
is_inside_oldest(const Position *position, const Fence *fence)
{
	return fence->number == window_oldest_number() && fence->number > position->first_window &&
		fence->last_id != FENCE_AT_END;
}

/* Handles a Redis that is new, another one, or was emptied. */
static void
resume_without_fence(Position *position)
{
	if (position->published <= position->first_window)
		return;
	if (outbox_redis_data_loss != DATA_LOSS_RESUME)
		resume_from_oldest(position, "outbox: Redis has no fence of this database; sending again all that is in the log after window %lld");
	else if (position_is_news(position, NEWS_FENCE))
		ereport(LOG, (errmsg("outbox: Redis has no fence of this database; continuing after window %lld because \"outbox.redis_data_loss\" is \"resume\"",
							 (long long) position->sent)));
}

/*
 * Sends again everything that is in the log, and notes what is no longer there,
 * if anything. `message` has a %lld for the window after which sending begins.
 */
static void
resume_from_oldest(Position *position, const char *message)
{
	TimestampTz lost_before = 0;

	position->sent = oldest_to_replay(position);
	if (position->sent > position->first_window)
		lost_before = loss_note_before(position->sent);
	if (position_is_news(position, NEWS_FENCE))
		ereport(LOG, (errmsg(message, (long long) position->sent),
					  lost_before == 0 ? 0 :
					  errdetail("Messages enqueued before %s that Redis has lost are no longer in the log.",
								timestamptz_to_str(lost_before))));
}

/* Returns the window after which everything that is kept would be sent again. */
static int64
oldest_to_replay(const Position *position)
{
	return Min(Max(window_oldest_number(), position->first_window), position->published);
}
