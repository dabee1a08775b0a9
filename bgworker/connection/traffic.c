/*
 * traffic.c
 *		What is under way on the dispatcher's links to Redis.
 *
 * Called by redis_session.c and others in this directory, and by publisher.c, delivery.c and
 * forbidden.c. A command is sent on the link to the master that has the slot of its lane;
 * a single Redis has all slots. The answers of one link come in the order in which
 * the commands were sent, so the caller says for which lane it wants the next one.
 *
 * Every failure of a link closes all of them, after which the links of lanes must not
 * be used: there is one way of recovery, for all lanes together. The fences that the next connection reads tell what has arrived.
 * Only where fences are read first, or claimed, a lane that cannot be reached is blocked, and the others are used (lanes.c).
 */
#include "postgres.h"

#include "bgworker/connection/nodes_away.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/identity/redis_lease.h"
#include "src/clock.h"
#include "src/foreign_text.h"

static RedisCluster *redis;
static ScriptCall script;
static bool is_open;
static int	answers_due;		/* on this connection */
static TimestampTz sent_alone;	/* when something was sent while nothing was
								 * under way; 0 = its answer has come */
static int64 round_trip;		/* the shortest one on this connection, in
								 * microseconds */
static TimestampTz answered_at; /* when a batch was answered last, by
								 * clock_now(); 0 = never */
static bool knows_why;			/* the links were closed for a reason that is
								 * no fault of a message */
static bool gave_up;			/* the links were closed by us, and had not
								 * failed */
static bool was_reached;		/* the server that was tried last has answered */
static char error[LINK_ERROR_BYTES];

static void note_sent(void);

/*
 * Prepares for use; called once, when the dispatcher starts. `attend` is called
 * while waiting, `prepare` with each link that was opened.
 */
void
traffic_init(LinkAttend attend, LinkPrepare prepare)
{
	redis = redis_cluster_create(attend, prepare);
}

/* Connects, to any node if it is a cluster. Nothing is under way then. */
bool
traffic_open(void)
{
	knows_why = false;
	gave_up = false;
	answers_due = 0;
	sent_alone = 0;
	round_trip = PG_INT64_MAX;
	is_open = redis_cluster_open(redis, NULL);
	script.clustered = traffic_is_clustered();
	return is_open || traffic_fail_as_cluster();
}

/* Check whether something can be sent, as far as is known. */
bool
traffic_is_open(void)
{
	return is_open;
}

/* Closes all links. What is under way may arrive or not. */
void
traffic_close(void)
{
	is_open = false;
	redis_cluster_close(redis);
}

/* Returns the Redis that we are connected to, for what has one key and is called at once. */
RedisCluster *
traffic_redis(void)
{
	return redis;
}

/* Returns what is the same in all runs of the script on this connection. */
ScriptCall *
traffic_script(void)
{
	return &script;
}

/* Check whether keys are in slots, which may be on several nodes. */
bool
traffic_is_clustered(void)
{
	return redis_cluster_has_slots(redis);
}

/* Finds the link to the master that has the slot of a lane; it is opened if need be. */
bool
traffic_reach(Lane *lane)
{
	lane->link = redis_cluster_link(redis, lane->slot);
	return lane->link != NULL || traffic_fail_as_cluster();
}

/*
 * The same for a lane of a cluster, whose map has been read, that may be blocked:
 * returns why it cannot be reached, with all links open; NULL if it is.
 */
const char *
traffic_try_reach(Lane *lane)
{
	const RedisNode *node = redis_cluster_node_of(redis, lane->slot);
	const char *why = node ? nodes_away_why(node) : NULL;

	if (why)
		return why;
	was_reached = false;
	lane->link = redis_cluster_link(redis, lane->slot);
	if (lane->link)
		return NULL;
	if (node && was_reached)
		nodes_away_add_refusing(node, redis_cluster_error(redis));
	else if (node)
		nodes_away_add(node, redis_cluster_error(redis));
	return redis_cluster_error(redis);
}

/* Notes that a server has answered, whatever it refuses after that. */
void
traffic_note_reached(void)
{
	was_reached = true;
}

/* Sends a command that is given as strings. From then on an answer to it is due. */
bool
traffic_ask(Lane *lane, int argc, const char **argv)
{
	if (!is_open)
		return false;
	note_sent();
	return redis_link_send_strings(lane->link, argc, argv) || traffic_fail_as_link(lane->link);
}

/*
 * Renews the lease of a cluster if that is due, also while something is under way; in a
 * single Redis batches renew it. Returns false if the links are closed: that is no fault of
 * a message.
 */
bool
traffic_keep_lease(void)
{
	if (!is_open || !traffic_is_clustered() || redis_lease_keep(redis, script.lease_key))
		return is_open;
	knows_why = true;
	return traffic_fail_as_cluster();
}

/*
 * Sends a command for a lane. From then on an answer to it is due. In a cluster the
 * lease is not checked by the command, so it must be known to be ours.
 */
bool
traffic_send(Lane *lane, Command *command)
{
	if (!traffic_keep_lease())
		return false;
	note_sent();
	return command_send(command, lane->link) || traffic_fail_as_link(lane->link);
}

/* Waits for an answer to what is under way for a lane, but not beyond `until`. Returns false if the time is up. */
bool
traffic_await(const Lane *lane, TimestampTz until)
{
	return !is_open || redis_link_await(lane->link, until);
}

/* Receives the next answer for a lane; NULL if its link fails. */
redisReply *
traffic_receive(Lane *lane)
{
	redisReply *reply = is_open ? redis_link_receive(lane->link) : NULL;

	answers_due--;
	if (sent_alone != 0)
		round_trip = Min(round_trip, clock_now() - sent_alone);
	sent_alone = 0;
	if (reply == NULL)
		(void) traffic_fail_as_link(lane->link);
	return reply;
}

/*
 * Waits for the verdict on the oldest batch under way for a lane, which has `messages`
 * messages. Returns false if there is none; all links are then closed.
 */
bool
traffic_receive_verdict(Lane *lane, Verdict *verdict, int messages)
{
	redisReply *reply = traffic_receive(lane);

	if (reply == NULL)
		return false;
	if (!batch_verdict_read(verdict, reply, messages, traffic_is_clustered()))
		return traffic_fail_as_lane(lane, verdict->error);
	answered_at = clock_now();
	return true;
}

/*
 * The same for a command without messages. If it could not be run, but others may be that
 * are for other lanes, this returns true with the error.
 */
bool
traffic_receive_claim(Lane *lane, Verdict *verdict)
{
	redisReply *reply = traffic_receive(lane);

	if (reply == NULL)
		return false;
	return batch_verdict_read(verdict, reply, 0, traffic_is_clustered()) ||
		(traffic_is_clustered() && batch_verdict_is_of_lane(verdict->error)) || traffic_fail_as_lane(lane, verdict->error);
}

/*
 * The same for a batch behind a refused message of its lane: the only answer allowed
 * is that the fence has moved, or that it was not compared because a stream is forbidden.
 */
bool
traffic_receive_moved(Lane *lane)
{
	redisReply *reply = traffic_receive(lane);
	bool		expected = reply && reply->type == REDIS_REPLY_ERROR &&
		(strncmp(reply->str, SCRIPT_FENCE_MOVED, strlen(SCRIPT_FENCE_MOVED)) == 0 ||
		 (traffic_is_clustered() && batch_verdict_forbids_key(reply)));

	if (reply && !expected)
		redis_link_fail_with_reply(lane->link, reply, "a batch behind a refused message was not rejected");
	if (reply)
		freeReplyObject(reply);
	return expected || traffic_fail_as_link(lane->link);
}

/* Returns how many answers are due. */
int
traffic_under_way(void)
{
	return answers_due;
}

/* Returns how long, in microseconds, the fastest command has taken on this connection. */
int64
traffic_round_trip(void)
{
	return round_trip;
}

/* Returns when a batch was answered last, which renews the lease of a single Redis, by clock_now(); 0 = never. */
TimestampTz
traffic_answered_at(void)
{
	return answered_at;
}

/* Closes all links, for a reason that is no fault of a message. Returns false. */
bool
traffic_fail(const char *reason)
{
	redis_cluster_fail(redis, reason);
	knows_why = true;
	return traffic_fail_as_cluster();
}

/* Closes all links because of an error that was answered for a lane. Returns false. */
bool
traffic_fail_as_lane(Lane *lane, const char *reason)
{
	knows_why = batch_verdict_is_of_server(reason);
	if (traffic_is_clustered())
		redis_link_fail(lane->link, "%s, in hash slot %d", reason, lane->slot);
	else
		redis_link_fail(lane->link, "%s", reason);
	return traffic_fail_as_link(lane->link);
}

/* Closes all links because all lanes are blocked. Returns false. */
bool
traffic_fail_as_blocked(const char *why)
{
	strlcpy(error, why, sizeof(error));
	knows_why = true;
	traffic_close();
	return false;
}

/* Closes all links because this one has failed; its error says why. Returns false. */
bool
traffic_fail_as_link(RedisLink *link)
{
	if (is_open)
		strlcpy(error, redis_link_error(link), sizeof(error));
	traffic_close();
	return false;
}

/* The same if no link to a master can be named. */
bool
traffic_fail_as_cluster(void)
{
	if (!gave_up)
		strlcpy(error, redis_cluster_error(redis), sizeof(error));
	traffic_close();
	return false;
}

/* Returns why the links were closed, or the lease not taken. */
const char *
traffic_error(void)
{
	return error;
}

/* Writes what a node of a cluster has answered, and for which hash slot, to `why`. */
void
traffic_locate_error(int slot, const char *error, char *why, size_t size)
{
	const RedisNode *node = redis_cluster_node_of(redis, slot);

	snprintf(why, size, "%s, in hash slot %d (%s:%d)", error, slot, node ? node->host : "?", node ? node->port : 0);
}

/* Check whether the links were closed for a known reason, which is no fault of a message. */
bool
traffic_knows_why(void)
{
	return knows_why;
}

/*
 * Closes the links because no transaction could begin, which is refused only while the
 * extension is being dropped or altered. That is no error, so the last one stays.
 */
void
traffic_give_up(void)
{
	gave_up |= is_open;
	knows_why = true;
	traffic_close();
}

/* Check whether the links were closed by traffic_give_up(), and had not failed before. */
bool
traffic_gave_up(void)
{
	return gave_up;
}

/* Notes that something was sent. */
static void
note_sent(void)
{
	if (answers_due++ == 0)
		sent_alone = clock_now();
}
