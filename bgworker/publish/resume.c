/*
 * resume.c
 *		Goes to where the fence in Redis says that publishing had got.
 *
 * Called by redis_session.c on every connection. The fence may be gone, or name
 * a window that is not kept any more, or one that this database never opened.
 * Then what the log still has is sent again, unless outbox.redis_data_loss says
 * otherwise; what it has not is noted (loss.c).
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/publish/fence.h"
#include "bgworker/publish/loss.h"
#include "bgworker/publish/resume.h"
#include "src/settings.h"

static bool is_kept(const Fence *fence);
static bool is_amid_oldest(const Position *position, const Fence *fence);
static void resume_without_fence(Position *position);
static void resume_from_oldest(Position *position, const char *reason);
static int64 oldest_to_replay(const Position *position);
static bool is_news(Position *position);

/*
 * Goes to where Redis says it is; called on every connect, with the value of
 * the fence. Needs an open transaction.
 */
void
resume_position(Position *position, const char *fence_text)
{
	Fence		fence;

	position->resume_after = 0;
	window_rows_free(&position->rows);
	position->sent = position->published;

	if (!fence_parse(fence_text, &fence))
		resume_without_fence(position);
	else if (is_kept(&fence) && is_amid_oldest(position, &fence))
		resume_from_oldest(position, "the fence in Redis is amid the oldest window, of which only the end is kept; going on");
	else if (is_kept(&fence))
	{
		position->sent = fence.number;
		if (fence.number > window_oldest_number() && fence.last_id != FENCE_AT_END)
		{
			position->sent = fence.number - 1;
			position->resume_after = fence.last_id;
		}
		position->published = Max(position->published, position->sent);
		position->fence_told = false;
	}
	else if (fence.number < window_oldest_number())
		resume_from_oldest(position, "the fence in Redis is older than the windows that are kept; going on");
	else if (is_news(position))
		ereport(LOG,
				(errmsg("outbox: the fence in Redis names window %lld, which this database never opened; going on after window %lld",
						(long long) fence.number, (long long) position->sent),
				 errdetail("The database was restored to an earlier time, or a standby was promoted that lacked the newest transactions.")));
	position_note_published(position);
}

/* Check whether the window is ours, and kept in an unbroken row up to the newest. */
static bool
is_kept(const Fence *fence)
{
	Window		window;

	return fence->number >= window_oldest_number() && window_fetch(fence->number, &window) &&
		memcmp(&window.uuid, &fence->uuid, sizeof(pg_uuid_t)) == 0;
}

/*
 * Check whether Redis has gone back to a message of the oldest window, of
 * which only the end is kept. Before others expired the fence was put to the
 * end of a window (redis_session_settle_fence()).
 */
static bool
is_amid_oldest(const Position *position, const Fence *fence)
{
	return fence->number == window_oldest_number() && fence->number > position->first_window &&
		fence->last_id != FENCE_AT_END;
}

/* Redis is new, another one, or was emptied. */
static void
resume_without_fence(Position *position)
{
	if (position->published <= position->first_window)
		return;
	if (outbox_redis_data_loss != DATA_LOSS_RESUME)
		resume_from_oldest(position, "Redis has no fence of this database; sending all that the log still has,");
	else if (is_news(position))
		ereport(LOG, (errmsg("outbox: Redis has no fence of this database; going on after window %lld, as \"outbox.redis_data_loss\" says",
							 (long long) position->sent)));
}

/* Sends all that is kept, and tells what is not kept any more, if anything is not. */
static void
resume_from_oldest(Position *position, const char *reason)
{
	TimestampTz lost_before = 0;

	position->sent = oldest_to_replay(position);
	if (position->sent > position->first_window)
		lost_before = loss_note_before(position->sent);
	if (is_news(position))
		ereport(LOG, (errmsg("outbox: %s after window %lld", reason, (long long) position->sent),
					  lost_before == 0 ? 0 :
					  errdetail("What Redis has lost of the messages enqueued before %s is not in the log any more.",
								timestamptz_to_str(lost_before))));
}

/* The window after which all that is kept would be sent again. */
static int64
oldest_to_replay(const Position *position)
{
	return Min(Max(window_oldest_number(), position->first_window), position->published);
}

/*
 * Each connection meets the same fence until something passes: the log need
 * not tell that each time.
 */
static bool
is_news(Position *position)
{
	bool		was_told = position->fence_told;

	position->fence_told = true;
	return !was_told;
}
