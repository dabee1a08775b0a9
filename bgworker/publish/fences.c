/*
 * fences.c
 *		Reads, claims, compares and moves the fences of all lanes in use.
 *
 * Called by redis_session.c, publisher.c and housekeeping.c. What is done with the
 * fences of several lanes is sent to all of them before the first answer is waited
 * for. Nothing else may be under way. Each function returns false if the links
 * were closed.
 *
 * A fence that does not move with messages is taken along, so that it never names a
 * window that has been removed, which would look like a loss of data in Redis. It is
 * never moved back: when windows are sent again because one lane has lost something,
 * the fences of others are ahead.
 *
 * A lane that is used for the first time (the order of steps is in used_lanes.c) gets
 * a fence at the end of the window that was sent last, for nothing up to there was
 * for it.
 */
#include "postgres.h"

#include "bgworker/publish/era.h"
#include "bgworker/publish/fences.h"
#include "bgworker/publish/lanes.h"
#include "bgworker/publish/resume.h"
#include "bgworker/publish/traffic.h"
#include "bgworker/publish/used_lanes.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/redis/moving_slots.h"
#include "src/settings.h"

#define SHARE_OF_TIME	50		/* what all lanes take is at most a fiftieth
								 * of the time */

static Command *command;		/* without messages */

static bool read_fences(int first, bool of_others);
static bool read_fence(Lane *lane, bool of_others);
static bool expect_none_torn(int first);
static void want_claimed(Lane *lane);
static bool want_first_use(const Position *position, int first);
static bool set_wanted(int first);
static bool set_fence(Lane *lane);
static void want_end(Lane *lane, int64 number, const pg_uuid_t *uuid);
static bool take_along(Lane *lane, int64 number, const pg_uuid_t *uuid);

/* Prepares for use; called once, when the dispatcher starts. */
void
fences_init(void)
{
	command = command_create();
}

/*
 * Writes the names of this connection into all fences that there are in a cluster, of
 * whatever slot. Called when another server published before us: what it has sent and
 * is still on its way, also to lanes of which our database knows nothing, is refused
 * from then on. A lane without a fence needs nothing, for no batch builds on that; and
 * to one that it claims later the other server sends nothing, without the lease. Their
 * eras are remembered. No lane is in use after that.
 */
bool
fences_bar_others(void)
{
	for (int slot = 0; slot < HASH_SLOTS; slot++)
		lanes_enter(slot);
	if (!read_fences(0, true))
		return false;
	for (int i = 0; i < lanes_count(); i++)
	{
		if (lanes_get(i)->fence[0] == '\0')
			continue;
		era_meet(lanes_get(i)->fence);
		want_claimed(lanes_get(i));
	}
	if (!set_wanted(0))
		return false;
	lanes_begin(true);
	KILL_POINT("lane_others_barred");
	return true;
}

/*
 * Reads the fences of all lanes in use, and writes the names of this connection into
 * them, without moving them.
 */
bool
fences_claim(void)
{
	if (!read_fences(0, false) || !expect_none_torn(0))
		return false;
	for (int i = 0; i < lanes_count(); i++)
		want_claimed(lanes_get(i));
	if (!set_wanted(0))
		return false;
	for (int i = 0; i < lanes_count(); i++)
		lanes_get(i)->is_ours = true;
	return true;
}

/*
 * Takes the lanes into use that are wanted for messages of the next page: claims
 * their fences, and notes them on disk. Nothing of that page may be sent before a
 * standby has the note (transaction_confirm()).
 */
bool
fences_use_wanted(const Position *position)
{
	int			first = lanes_enter_wanted();

	if (!read_fences(first, false) || !expect_none_torn(first) || !want_first_use(position, first) || !set_wanted(first))
		return false;
	for (int i = first; i < lanes_count(); i++)
	{
		lanes_get(i)->is_ours = true;
		used_lanes_add(lanes_get(i)->slot);
	}
	if (used_lanes_note())
		return true;
	traffic_give_up();
	return false;
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
	static TimestampTz next;
	TimestampTz begun = clock_now();
	bool		compared;

	if (lanes_count() > 1 && begun < next)
		return true;
	for (int i = 0; i < lanes_count(); i++)
		lane_want(lanes_get(i), lanes_get(i)->fence, lanes_get(i)->at);
	compared = set_wanted(0);
	next = clock_now() + Min(SHARE_OF_TIME * (clock_now() - begun), outbox_replay_window * USECS_PER_SEC / 4);
	return compared;
}

/* Moves all fences to the end of a window that is finished. */
bool
fences_move(int64 number, const pg_uuid_t *uuid)
{
	for (int i = 0; i < lanes_count(); i++)
		want_end(lanes_get(i), number, uuid);
	return set_wanted(0);
}

/*
 * Moves all fences to a window that has been processed, as far as they lag behind by
 * more than a moment. A window whose messages were all deferred, or were for other
 * lanes, has left the fence where it was.
 */
bool
fences_take_along(int64 number, const pg_uuid_t *uuid)
{
	static TimestampTz next;
	TimestampTz begun = clock_now();
	bool		any = false;

	if (lanes_count() > 1 && begun < next)
		return true;
	for (int i = 0; i < lanes_count(); i++)
		any |= take_along(lanes_get(i), number, uuid);
	if (!any)
		return true;
	if (!set_wanted(0))
		return false;
	for (int i = 0; i < lanes_count(); i++)
	{
		if (lane_is_at(lanes_get(i), number))
			lane_note_moved(lanes_get(i));
	}
	next = clock_now() + Max(SHARE_OF_TIME * (clock_now() - begun), lane_lag());
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
	found = window_fetch(position->sent, &window);
	transaction_commit();
	for (int i = 0; found && i < lanes_count(); i++)
	{
		if (!lane_has_passed(lanes_get(i), position->sent, position->first_window))
			want_end(lanes_get(i), window.number, &window.uuid);
	}
	return set_wanted(0);
}

/*
 * Reads the fences of all lanes in use from that one on. `of_others` tells that they
 * are only to be barred: one that has gone to another node amid a move of its slot is
 * out of reach for all until the move is over.
 */
static bool
read_fences(int first, bool of_others)
{
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);

		if (!traffic_reach(lane) || !traffic_ask(lane, 2, (const char *[]) {"GET", lane->key}))
			return false;
	}
	for (int i = first; i < lanes_count(); i++)
	{
		if (!read_fence(lanes_get(i), of_others))
			return false;
	}
	return true;
}

/* Receives the fence of a lane; it is empty if there is none. */
static bool
read_fence(Lane *lane, bool of_others)
{
	redisReply *reply = traffic_receive(lane);
	bool		none = reply &&
		(reply->type == REDIS_REPLY_NIL ||
		 (of_others && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "ASK ", 4) == 0));
	bool		read = none || (reply && reply->type == REDIS_REPLY_STRING && reply->len < FENCE_BYTES);

	if (reply == NULL)
		return false;
	if (read)
		lane_note_read(lane, none ? "" : reply->str);
	else
		redis_link_refused(lane->link, reply, "could not read the fence");
	freeReplyObject(reply);
	return read || traffic_fail_as_link(lane->link);
}

/*
 * Checks that no lane is torn apart. A fence that is missing because its slot is on its
 * way to another node must not be taken for a loss. Nor must a stream be written to
 * that has gone there: where a node fails over while it gives a slot away, Redis 7
 * forgets that it does, and the new master would begin a second copy. Only the node
 * that takes the slot over still tells. A node that knows that it gives a slot away
 * refuses by itself what it does not have any more.
 */
static bool
expect_none_torn(int first)
{
	static uint8 moving[HASH_SLOTS];

	if (!traffic_is_clustered())
		return true;
	if (!moving_slots_read(traffic_redis(), moving))
		return traffic_fail_as_cluster();
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);
		char		reason[128];

		if (lane->fence[0] == '\0' ? moving[lane->slot] == 0 : moving[lane->slot] != SLOT_COMES)
			continue;
		snprintf(reason, sizeof(reason), "hash slot %d is torn between two nodes", lane->slot);
		return traffic_fail(reason);
	}
	return true;
}

/* Has the name of this connection written into the fence of a lane. */
static void
want_claimed(Lane *lane)
{
	char		claimed[FENCE_BYTES];

	lane_claim(lane, claimed);
	lane_want(lane, claimed, lane->at);
}

/*
 * Has the fences of lanes that are used for the first time claimed where they are, if
 * they name a window behind the one that was sent last; otherwise moved there.
 */
static bool
want_first_use(const Position *position, int first)
{
	Window		sent;
	bool		found;

	if (!transaction_begin("reading a window"))
	{
		traffic_give_up();
		return false;
	}
	found = window_at(position->sent, &sent);
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);

		lane->at = resume_place_at_first_use(position, lane->fence);
		want_claimed(lane);
		if (found && place_precedes(lane->at, place_at_end(sent.number)))
			want_end(lane, sent.number, &sent.uuid);
	}
	transaction_commit();
	return true;
}

/* Sets the fences that are wanted, of all lanes in use from that one on, if they still have the values we know. */
static bool
set_wanted(int first)
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
	for (int i = first; i < lanes_count(); i++)
	{
		if (lanes_get(i)->wanted[0] != '\0' && !set_fence(lanes_get(i)))
			return false;
	}
	return true;
}

/* Receives the answer to the command that sets a fence. */
static bool
set_fence(Lane *lane)
{
	Verdict		verdict = {0};

	if (!traffic_receive_verdict(lane, &verdict, 0))
		return false;
	lane_expect(lane, lane->wanted, lane->wanted_at);
	lane->wanted[0] = '\0';
	return true;
}

/* Has a fence moved to the end of a window, unless it is beyond. */
static void
want_end(Lane *lane, int64 number, const pg_uuid_t *uuid)
{
	char		moved[FENCE_BYTES];

	if (lane->at.window > number)
		return;
	lane_write_fence(lane, &(Fence) {.number = number, .uuid = *uuid, .last_id = FENCE_AT_END}, moved);
	lane_want(lane, moved, place_at_end(number));
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
	want_end(lane, number, uuid);
	return lane->wanted[0] != '\0';
}
