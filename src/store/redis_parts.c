/*
 * redis_parts.c
 *		The parts of a deduplication store in Redis, each of which is in one place.
 *
 * Called by store_redis.c. A single Redis is one part. In a Redis Cluster the ids are
 * spread over STORE_PARTS hash slots by their first byte, and each of these has a
 * watermark: what a master loses it loses together, ids and watermark, and a slot
 * that moves takes both along. That number must never change, for ids would be looked
 * for where they are not.
 *
 * A part is followed to the node that it has moved to. While a slot is on its way, a
 * command with one key may ask the other node (ASKING): the key is there if it is
 * anywhere. A script may not, for it would see some of its keys only.
 *
 * A replica may lack what was added last. One of a cluster sends us to its master; a
 * single Redis is asked for its role with each command, so that a master that has
 * become a replica is noticed, too.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "src/foreign_text.h"
#include "src/redis/resp.h"
#include "src/redis_cluster/hash_slot.h"
#include "src/redis_cluster/slot_map.h"
#include "src/store/redis_parts.h"

#define MAX_HOPS	5			/* from node to node, for one command */

/* One run of commands. */
typedef struct Run
{
	RedisParts *parts;
	PartCommands *commands;
	RedisLink  *links[STORE_PARTS]; /* where they were sent; NULL = nothing is
									 * to be sent any more */
	RedisNode	other[STORE_PARTS]; /* node to be asked in its place */
	bool		ask_other[STORE_PARTS];
	StoreFailure *failure;
} Run;

static int	slot_of(int part);
static bool send_to_part(Run *run, int part);
static bool read_role(Run *run, RedisLink *link);
static bool receive_from_part(Run *run, int part, bool may_hop);
static bool is_elsewhere(Run *run, int part, const redisReply *reply);
static bool fail_with(Run *run, int part, const redisReply *reply);
static bool fail_with_text(StoreFailure *failure, const char *text);

/* Connects to a store. Returns NULL, with the reason, if that fails. */
RedisParts *
redis_parts_open(const char *url, LinkAttend attend, StoreFailure *failure)
{
	RedisParts *parts = MemoryContextAllocZero(TopMemoryContext, sizeof(RedisParts));
	bool		opened = false;

	PG_TRY();
	{
		parts->redis = redis_cluster_create(attend, NULL);
		opened = redis_cluster_open(parts->redis, url);
		if (!opened)
			(void) fail_with_text(failure, redis_cluster_error(parts->redis));
	}
	PG_CATCH();
	{
		redis_parts_close(parts);
		PG_RE_THROW();
	}
	PG_END_TRY();
	parts->n = redis_cluster_has_slots(parts->redis) ? STORE_PARTS : 1;
	if (opened)
		return parts;
	redis_parts_close(parts);
	return NULL;
}

/* Closes and frees all of it. */
void
redis_parts_close(RedisParts *parts)
{
	if (parts->redis)
		redis_cluster_free(parts->redis);
	pfree(parts);
}

/* Returns the part that an id belongs to. */
int
redis_parts_of(const RedisParts *parts, const pg_uuid_t *key)
{
	return key->data[0] % parts->n;
}

/* Writes the beginning of the name of a key that belongs to a part. Returns its length. */
int
redis_parts_name(const RedisParts *parts, int part, const char *prefix, char *name, size_t size)
{
	if (parts->n == 1)
		return snprintf(name, size, "%s", prefix);
	return snprintf(name, size, "%s{%s}", prefix, hash_slot_tag(slot_of(part)));
}

/* Returns the slot of a part: they are equally far apart, so that they are spread over the masters. */
static int
slot_of(int part)
{
	return part * (HASH_SLOTS / STORE_PARTS);
}

/*
 * Sends commands to parts and has their replies visited. Returns false, with the
 * reason, if one of them could not be run, or has a reply that was not expected.
 */
bool
redis_parts_run(RedisParts *parts, PartCommands *commands, StoreFailure *failure)
{
	Run			run = {.parts = parts, .commands = commands, .failure = failure};
	bool		all_done = false;

	for (int hops = 0; !all_done; hops++)
	{
		for (int part = 0; part < parts->n; part++)
		{
			if (commands->commands[part] && !send_to_part(&run, part))
				return false;
		}
		all_done = true;
		for (int part = 0; part < parts->n; part++)
		{
			if (commands->commands[part] && !receive_from_part(&run, part, hops < MAX_HOPS))
				return false;
			all_done &= commands->commands[part] == NULL;
		}
	}
	return true;
}

/* Sends the commands for a part to the node that has it. */
static bool
send_to_part(Run *run, int part)
{
	static const char role[] = "*1\r\n$4\r\nROLE\r\n";
	static const char asking[] = "*1\r\n$6\r\nASKING\r\n";
	RedisCluster *redis = run->parts->redis;
	StringInfo	commands = run->commands->commands[part];
	RedisLink  *link = run->ask_other[part] ? redis_cluster_link_to(redis, &run->other[part]) :
		redis_cluster_link(redis, slot_of(part));
	bool		sent;

	if (link == NULL)
		return fail_with_text(run->failure, redis_cluster_error(redis));
	run->links[part] = link;
	if (run->ask_other[part])
		sent = redis_link_send(link, asking, sizeof(asking) - 1);
	else
		sent = redis_cluster_has_slots(redis) || redis_link_send(link, role, sizeof(role) - 1);
	sent = sent && redis_link_send(link, commands->data, commands->len);
	return sent || fail_with_text(run->failure, redis_link_error(link));
}

/*
 * Receives the replies of a part. If they say that it is elsewhere, its commands are
 * left to be sent again; otherwise nothing is left of them.
 */
static bool
receive_from_part(Run *run, int part, bool may_hop)
{
	RedisLink  *link = run->links[part];
	bool		moved = false;
	bool		ok = true;

	if (run->ask_other[part] || !redis_cluster_has_slots(run->parts->redis))
	{
		if (!read_role(run, link))
			return false;
	}
	run->ask_other[part] = false;
	for (int n = 0; n < run->commands->replies && ok; n++)
	{
		redisReply *reply = redis_link_receive(link);

		if (reply == NULL)
			return fail_with_text(run->failure, redis_link_error(link));
		moved |= n == 0 && may_hop && is_elsewhere(run, part, reply);
		ok = moved || run->commands->visit(part, n, reply, run->commands->arg) || fail_with(run, part, reply);
		freeReplyObject(reply);
	}
	if (!moved)
		run->commands->commands[part] = NULL;
	return ok;
}

/* Reads the answer to ROLE, or to ASKING. */
static bool
read_role(Run *run, RedisLink *link)
{
	redisReply *reply = redis_link_receive(link);
	const char *role = NULL;
	bool		ok;

	if (reply == NULL)
		return fail_with_text(run->failure, redis_link_error(link));
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING)
		role = reply->element[0]->str;
	ok = reply->type == REDIS_REPLY_STATUS || (role && strcmp(role, "master") == 0);
	if (role && !ok)
		store_failure_set(run->failure, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						  "it is a replica, which might lack what was added last");
	else if (!ok)
		(void) fail_with(run, 0, reply);
	freeReplyObject(reply);
	return ok;
}

/* Check whether a reply says that another node has a part; if so, notes which one. */
static bool
is_elsewhere(Run *run, int part, const redisReply *reply)
{
	RedisCluster *redis = run->parts->redis;
	int			slot;

	if (!redis_cluster_has_slots(redis))
		return false;
	if (run->commands->has_one_key && slot_map_read_ask(reply, redis_link_host(run->links[part]), &slot, &run->other[part]))
		run->ask_other[part] = true;
	return run->ask_other[part] || redis_cluster_follow(redis, run->links[part], reply);
}

/* Notes what a reply says that was not expected. A Redis that cannot answer yet can be asked again soon. */
static bool
fail_with(Run *run, int part, const redisReply *reply)
{
	static const char *const passing[] = {"LOADING", "TRYAGAIN", "ASK ", "CLUSTERDOWN"};
	char		text[FOREIGN_TEXT_BYTES];
	int			sqlstate = ERRCODE_CONNECTION_FAILURE;

	resp_error(reply, text, sizeof(text));
	for (int i = 0; i < lengthof(passing); i++)
	{
		if (strncmp(text, passing[i], strlen(passing[i])) == 0)
			sqlstate = ERRCODE_CANNOT_CONNECT_NOW;
	}
	if (redis_cluster_has_slots(run->parts->redis))
		store_failure_set(run->failure, sqlstate, "%s (hash slot %d)", text, slot_of(part));
	else
		store_failure_set(run->failure, sqlstate, "%s", text);
	return false;
}

/* Notes why a link failed. */
static bool
fail_with_text(StoreFailure *failure, const char *text)
{
	store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "%s", text);
	return false;
}
