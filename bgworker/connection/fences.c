/*
 * fences.c
 *		Compares and moves the fences of all lanes in use.
 *
 * Called by fence_claims.c, redis_session.c, publisher.c, housekeeping.c and
 * closing_window.c. What is done with the fences of several lanes is sent to all of them
 * before the first answer is waited for. Nothing else may be under way. Each function
 * returns false if the links were closed. Nothing is done with lanes that are blocked
 * (lanes.c).
 *
 * A fence that does not move with messages is taken along, so that it never names a
 * window that has been removed, which would look like a loss of data in Redis. It is
 * never moved back: when windows are sent again because one lane has lost something,
 * the fences of others are ahead.
 */
#include "postgres.h"

#include "bgworker/connection/fences.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/process/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/settings.h"

#define SHARE_OF_TIME	50		/* what all lanes take is at most a fiftieth
								 * of the time */

/* When something is done next with the fences of all lanes. */
typedef struct Rest
{
	TimestampTz until;			/* by clock_now() */
	int64		took;			/* how long it took last, in microseconds */
} Rest;

static Command *command;		/* without messages */

static void rest_after(Rest *rest, TimestampTz begun);
static bool take_along(Lane *lane, int64 number, const pg_uuid_t *uuid);

/* Prepares for use; called once, when the dispatcher starts. */
void
fences_init(void)
{
	command = command_create();
}

/* Check whether the slots of all lanes are still where the links go, as far as is known; if not, closes these. */
bool
fences_are_reached(void)
{
	for (int i = 0; i < lanes_count(); i++)
	{
		const RedisLink *before = lanes_get(i)->link;

		if (!traffic_reach(lanes_get(i)))
			return false;
		if (lanes_get(i)->link != before)
			return traffic_fail("a hash slot has moved to another node");
	}
	return true;
}

/*
 * Compares all fences with what we know. So we find out whether Redis is still there
 * and still has them. In a single Redis that renews the lease. Where there are very
 * many, it is not done each time.
 */
bool
fences_compare(void)
{
	static Rest rest;
	TimestampTz begun = clock_now();
	bool		compared;

	if (lanes_count() > 1 && begun < rest.until)
		return true;
	for (int i = 0; i < lanes_count(); i++)
		lane_want(lanes_get(i), lanes_get(i)->fence, lanes_get(i)->at);
	compared = fences_set_wanted();

	/* One that has failed may have waited for a master that hangs. */
	if (compared)
		rest_after(&rest, begun);
	return compared;
}

/* Moves all fences to the end of a window that is finished. */
bool
fences_move(int64 number, const pg_uuid_t *uuid)
{
	for (int i = 0; i < lanes_count(); i++)
		lane_want_end(lanes_get(i), number, uuid);
	return fences_set_wanted();
}

/*
 * Moves all fences to a window that has been processed, as far as they lag behind by
 * more than a moment. A window whose messages were all deferred, or were for other
 * lanes, has left the fence where it was.
 */
bool
fences_take_along(int64 number, const pg_uuid_t *uuid)
{
	static Rest rest;
	TimestampTz begun = clock_now();
	bool		any = false;

	if (lanes_count() > 1 && begun < rest.until)
		return true;
	for (int i = 0; i < lanes_count(); i++)
		any |= take_along(lanes_get(i), number, uuid);
	if (!any)
		return true;
	if (!fences_set_wanted())
		return false;
	for (int i = 0; i < lanes_count(); i++)
	{
		if (lane_is_at(lanes_get(i), number))
			lane_note_moved(lanes_get(i));
	}
	rest_after(&rest, begun);
	return true;
}

/*
 * Moves the fences to the end of the window that was sent last, unless they are
 * there or beyond. Called before anything expires: after that, a fence must
 * name neither a window that was removed nor a message of one that was removed
 * in part, unless Redis has gone back.
 */
bool
fences_settle(const Position *position)
{
	bool		any = false;
	Window		window;
	bool		found;

	for (int i = 0; i < lanes_count(); i++)
		any |= !lane_has_passed(lanes_get(i), position->sent, position->first_window);
	if (!any)
		return true;
	if (!transaction_begin("reading a window"))
	{
		traffic_give_up();
		return false;
	}
	found = window_row_fetch(position->sent, &window);
	transaction_commit();
	for (int i = 0; found && i < lanes_count(); i++)
	{
		if (!lane_has_passed(lanes_get(i), position->sent, position->first_window))
			lane_want_end(lanes_get(i), window.number, &window.uuid);
	}
	return fences_set_wanted();
}

/* Sets the fences that are wanted, of all lanes in use, if they still have the values we know. */
bool
fences_set_wanted(void)
{
	if (!fences_send_wanted(0))
		return false;
	for (int i = 0; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);
		Verdict		verdict = {0};

		if (lane->wanted[0] == '\0')
			continue;
		if (!traffic_receive_verdict(lane, &verdict, 0))
			return false;
		lane_note_set(lane);
	}
	return true;
}

/* Sends the commands that set the fences that are wanted, of all lanes in use from that one on. Their answers must be received next. */
bool
fences_send_wanted(int first)
{
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);

		if (lane->wanted[0] == '\0')
			continue;
		command_make_empty(command, traffic_script(), lane, lane->wanted);
		if (!traffic_send(lane, command))
			return false;
	}
	KILL_POINT("fence_sent");
	return true;
}

/*
 * Notes when to do next what was begun then and has just ended: before a loss could go
 * unnoticed for long. It takes as long as the slowest master; one that has hung for a moment
 * does not count.
 */
static void
rest_after(Rest *rest, TimestampTz begun)
{
	TimestampTz now = clock_now();
	int64		usual = Min(now - begun, rest->took);

	rest->took = now - begun;
	rest->until = now + Max(Min(SHARE_OF_TIME * usual, outbox_replay_window * USECS_PER_SEC / 4), lane_lag());
}

/* Has a fence taken along, if that is due. Returns whether it is. */
static bool
take_along(Lane *lane, int64 number, const pg_uuid_t *uuid)
{
	if (lane_is_at(lane, number))
	{
		lane_note_moved(lane);
		return false;
	}
	if (lane_may_lag(lane))
		return false;
	lane_want_end(lane, number, uuid);
	return lane->wanted[0] != '\0';
}
