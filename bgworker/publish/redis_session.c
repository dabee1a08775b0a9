/*
 * redis_session.c
 *		The dispatcher's connection to Redis: the handshake, the fence and the lease.
 *
 * Called by the dispatcher, redis_state.c and publisher.c. When a connection is
 * opened, the server is checked, the script is loaded, the lease is taken, and
 * the fence is read and claimed; publishing resumes where it says. No
 * transaction is open while waiting for Redis.
 *
 * Every failure closes the link; the fence that the next connection reads tells
 * what has arrived.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/publish/lanes.h"
#include "bgworker/publish/lease.h"
#include "bgworker/publish/partition_layout.h"
#include "bgworker/publish/redis_server.h"
#include "bgworker/publish/redis_session.h"
#include "bgworker/publish/resume.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/redis/redis_connect.h"
#include "src/settings.h"

static RedisLink *redis;
static Instance *instance;
static ScriptCall call;
static Command *command;		/* without messages */
static int	answers_due;		/* answers to batches, on this connection */
static TimestampTz sent_alone;	/* when a batch was sent while none was under
								 * way; 0 = its answer has come */
static int64 round_trip;		/* the shortest one on this connection, in
								 * microseconds */
static bool knows_why;			/* the link was closed for a reason that is no
								 * fault of a message */

static redisReply *receive_answer(void);
static Connection look_at_lease(void);
static bool note_publisher(void);
static bool read_fence(Lane *lane);
static bool claim_fence(Lane *lane);
static bool set_fence(Lane *lane, const char *new_fence, WindowPlace at);

/*
 * Prepares for use; called once, when the dispatcher starts. `attend` is called
 * while waiting for Redis.
 */
void
redis_session_init(LinkAttend attend)
{
	redis = redis_link_create(attend);
	command = command_create();
	lease_init();
}

/* Sets the names of our keys in Redis. The pointer to the instance is kept. */
void
redis_session_set_instance(Instance *ours)
{
	char	   *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&ours->id)));

	instance = ours;
	strlcpy(call.instance, id, sizeof(call.instance));
	lanes_init(id);
	snprintf(call.lease_key, sizeof(call.lease_key), "outbox:lease:%s", id);
	pfree(id);
}

/*
 * Connects, takes the lease, reads the fence and resumes where it says. A batch
 * without messages finds out whether the script may run and write.
 */
Connection
redis_session_open(Position *position)
{
	Connection	lease;

	knows_why = false;
	lanes_begin();
	answers_due = 0;
	round_trip = PG_INT64_MAX;
	if (!redis_connect(redis) || !redis_server_check(redis) || !redis_server_load_script(redis, call.sha))
		return CONNECTION_FAILED;
	lease = look_at_lease();
	if (lease != CONNECTION_OPEN)
		return lease;
	KILL_POINT("lease_looked_at");
	if (!read_fence(lanes_get(0)) || !claim_fence(lanes_get(0)))
		return CONNECTION_FAILED;
	KILL_POINT("fence_claimed");
	destination_unsettle_all();
	if (!redis_session_settle_partitions())
		return CONNECTION_FAILED;
	if (!transaction_begin("reading the position"))
	{
		redis_session_give_up();
		return CONNECTION_FAILED;
	}
	resume_position(position);
	transaction_commit();
	KILL_POINT("position_resumed");
	return CONNECTION_OPEN;
}

/*
 * Releases the lease, so that others can publish without waiting for it to run
 * out; for a clean stop.
 */
void
redis_session_release(void)
{
	if (!redis_link_is_open(redis))
		return;
	command_make_release(command, &call);
	(void) command_send(command, redis);	/* if it does not arrive, it runs out */
	redis_link_close(redis);
}

/* Check whether batches can be sent. */
bool
redis_session_is_open(void)
{
	return redis_link_is_open(redis);
}

/* Returns why the link was closed, or the lease not taken. */
const char *
redis_session_error(void)
{
	return redis_link_error(redis);
}

/* Check whether the link was closed for a known reason, which is no fault of a message. */
bool
redis_session_knows_why(void)
{
	return knows_why;
}

/* Closes the link because no transaction could begin. */
void
redis_session_give_up(void)
{
	knows_why = true;
	redis_link_fail(redis, "the extension is being dropped");
}

/* Does what is due while waiting for Redis. */
void
redis_session_attend(void)
{
	redis_link_attend(redis);
}

/* Returns what is the same in all batches of this connection. */
const ScriptCall *
redis_session_call(void)
{
	return &call;
}

/* Returns how long, in microseconds, the fastest batch has taken on this connection. */
int64
redis_session_round_trip(void)
{
	return round_trip;
}

/* Sends a command for a lane. From then on an answer to it is due. */
bool
redis_session_send(Lane *lane, Command *which)
{
	if (answers_due++ == 0)
		sent_alone = clock_now();
	return command_send(which, redis);
}

/* Waits for the verdict on a batch under way, but not longer than that. Returns false if the time is up. */
bool
redis_session_await(TimestampTz until)
{
	return redis_link_await(redis, until);
}

/*
 * Waits for the verdict on the oldest batch under way for a lane, which has `messages`
 * messages. Returns false if there is none; the link is then closed.
 */
bool
redis_session_receive(Lane *lane, Verdict *verdict, int messages)
{
	redisReply *reply = receive_answer();

	if (reply == NULL)
		return false;
	if (verdict_read(verdict, reply, messages))
		return true;
	knows_why = verdict_is_of_server(verdict->error);
	redis_link_fail(redis, "%s", verdict->error);
	return false;
}

/*
 * The same for a batch behind a refused message: the only answer allowed is
 * that the fence has moved.
 */
bool
redis_session_receive_moved(Lane *lane)
{
	redisReply *reply = receive_answer();
	bool		expected = reply && reply->type == REDIS_REPLY_ERROR &&
		strncmp(reply->str, SCRIPT_FENCE_MOVED, strlen(SCRIPT_FENCE_MOVED)) == 0;

	if (reply && !expected)
		redis_link_refused(redis, reply, "a batch behind a refused message was not rejected");
	if (reply)
		freeReplyObject(reply);
	return expected;
}

/* Check whether batches are under way. */
bool
redis_session_awaits_answers(void)
{
	return redis_link_is_open(redis) && answers_due > 0;
}

/*
 * Check whether redis_session_renew() may be called now, whatever else is being
 * done with the link.
 */
bool
redis_session_may_renew(void)
{
	return redis_link_is_open(redis) && lanes_get(0)->is_ours && answers_due == 0;
}

/*
 * Renews the lease, and thereby finds out whether Redis is still there and
 * still has our fence. Must be called only when nothing is in flight. If the
 * server was set to evict keys, checks whether that has been corrected
 * meanwhile.
 */
bool
redis_session_renew(void)
{
	Lane	   *lane = lanes_get(0);

	return set_fence(lane, lane->fence, lane->at) && (!problem_is_set(PROBLEM_EVICTION) || redis_server_check(redis));
}

/* Moves the fence to the end of a window that is finished. */
bool
redis_session_move_fence(int64 number, const pg_uuid_t *uuid)
{
	char		moved[FENCE_BYTES];
	Lane	   *lane = lanes_get(0);

	lane_write_fence(lane, &(Fence) {.number = number, .uuid = *uuid, .last_id = FENCE_AT_END}, moved);
	return set_fence(lane, moved, place_at_end(number));
}

/*
 * Moves the fence to a window that has been processed, if it lags behind by
 * more than a moment. A window whose messages were all deferred has left the
 * fence where it was. If that continued, the fence would finally name a window
 * that has been removed, which looks like a loss of data in Redis.
 */
bool
redis_session_take_fence_along(int64 number, const pg_uuid_t *uuid)
{
	Lane	   *lane = lanes_get(0);

	if (!lane_is_at(lane, number))
	{
		if (lane_may_lag(lane))
			return true;
		if (!redis_session_move_fence(number, uuid))
			return false;
	}
	lane_note_moved(lane);
	return true;
}

/*
 * Moves the fence to the end of the window that was sent last, unless it is
 * there or beyond. Called before anything expires: after that, the fence must
 * name neither a window that was removed nor a message of one that was removed
 * in part, unless Redis has gone back. Must be called only when nothing is in
 * flight. Returns false if the link is closed.
 */
bool
redis_session_settle_fence(const Position *position)
{
	Window		window;
	bool		found;

	if (lane_has_passed(lanes_get(0), position->sent, position->first_window))
		return true;
	if (!transaction_begin("reading a window"))
	{
		redis_session_give_up();
		return false;
	}
	found = window_fetch(position->sent, &window);
	transaction_commit();
	return !found || redis_session_move_fence(window.number, &window.uuid);
}

/*
 * Has messages spread over the partitions that their destinations are to have, when
 * Redis has been told. If it refuses, whether the server or a destination is to
 * blame is told by a batch without messages. Must be called only when nothing is in
 * flight. Returns false if the link is closed.
 */
bool
redis_session_settle_partitions(void)
{
	bool		refused;
	Lane	   *lane = lanes_get(0);

	return partition_layout_settle(redis, &call, lane, &refused) && (!refused || set_fence(lane, lane->fence, lane->at));
}

/* Receives the next answer to a batch; NULL if the link fails. */
static redisReply *
receive_answer(void)
{
	redisReply *reply = redis_link_receive(redis);

	answers_due--;
	if (sent_alone != 0)
		round_trip = Min(round_trip, clock_now() - sent_alone);
	sent_alone = 0;
	return reply;
}

/*
 * Finds out whether we may publish. If another server published before us,
 * notes that we do now.
 */
static Connection
look_at_lease(void)
{
	bool		ours;

	if (!lease_look(redis, call.lease_key, instance->publisher[0] ? instance->publisher : NULL, &ours))
		return CONNECTION_FAILED;
	if (!ours)
		return CONNECTION_HELD;
	return note_publisher() ? CONNECTION_OPEN : CONNECTION_FAILED;
}

/* Notes in the database that we publish, for the server that takes over from us. */
static bool
note_publisher(void)
{
	if (strcmp(instance->publisher, lease_owner()) == 0)
		return true;
	if (!transaction_begin("noting the publisher"))
	{
		redis_session_give_up();
		return false;
	}
	instance_publish_as(instance, lease_owner());
	transaction_commit();
	return true;
}

/* Reads how far the last connection got; the fence is empty if Redis is new. */
static bool
read_fence(Lane *lane)
{
	redisReply *reply = redis_link_call(redis, 2, (const char *[]) {"GET", lane->key});
	bool		read = reply &&
		(reply->type == REDIS_REPLY_NIL ||
		 (reply->type == REDIS_REPLY_STRING && reply->len < FENCE_BYTES));

	if (read)
		lane_note_read(lane, reply->type == REDIS_REPLY_NIL ? "" : reply->str);
	else if (reply)
		redis_link_refused(redis, reply, "could not read the fence");
	if (reply)
		freeReplyObject(reply);
	return read;
}

/* Writes the name of this connection into the fence, without moving it. */
static bool
claim_fence(Lane *lane)
{
	char		claimed[FENCE_BYTES];

	lane_claim(lane, claimed);
	lane->is_ours = set_fence(lane, claimed, lane->at);
	return lane->is_ours;
}

/* Sets the fence if it still has the value we know, and renews the lease. */
static bool
set_fence(Lane *lane, const char *new_fence, WindowPlace at)
{
	Verdict		verdict = {0};

	command_make_empty(command, &call, lane, new_fence);
	if (!redis_session_send(lane, command))
		return false;
	KILL_POINT("fence_sent");
	if (!redis_session_receive(lane, &verdict, 0))
		return false;
	if (new_fence != lane->fence)
		lane_expect(lane, new_fence, at);
	return true;
}
