/*
 * closing_window.c
 *		Notes, when nothing was sent for a while, how far publishing has got.
 *
 * Called by housekeeping.c. Without messages no window is opened and the fence stays where
 * it is, so it would in the end name a window that is no longer kept. So after a second a
 * window without messages is opened, which says on disk that everything is published, and
 * the fence is moved to it. (At a clean stop shutdown.c opens such a window at once.)
 */
#include "postgres.h"

#include "bgworker/closing_window.h"
#include "bgworker/connection/fences.h"
#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/redis_state.h"
#include "bgworker/window/window_opening.h"
#include "src/clock.h"
#include "src/kill_point.h"

#define IDLE_MS			1000	/* until the position is noted */

/* Notes the position in the database and in Redis, if that is due and can be done. */
void
closing_window_when_idle(Position *position)
{
	if (!position_has_sent_all(position) || !position_has_news(position) || !redis_session_is_open() ||
		clock_now() - position->opened_at <= IDLE_MS * INT64CONST(1000))
		return;
	if (window_opening_closing(position) && !fences_move(position->opened.number, &position->opened.uuid))
		redis_state_note_failure();
	KILL_POINT("closing_fence_moved");
}

/* Returns how long until that may be due. */
long
closing_window_ms_until_due(const Position *position)
{
	return position_has_news(position) ? IDLE_MS : PG_INT32_MAX;
}
