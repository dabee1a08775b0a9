/*
 * redis_server.c
 *		Checks the Redis that we are connected to, and loads the script into it.
 *
 * Called by redis_session.c when a connection is opened, and repeatedly while
 * the server is set to evict keys.
 */
#include "postgres.h"

#include "bgworker/connection/batch_verdict.h"
#include "bgworker/connection/publish.lua.h"
#include "bgworker/connection/redis_server.h"
#include "src/foreign_text.h"
#include "src/problem.h"

static bool hangs_up(const redisReply *reply);
static const char *why_not_usable(const char *info, bool clustered);
static void note_eviction(const char *info, bool clustered);

/*
 * Check whether the server can be used, as a node of a cluster or as a single Redis;
 * if not, closes the link. If we may not call INFO, assumes that it can.
 */
bool
redis_server_check(RedisLink *link, bool clustered)
{
	redisReply *reply = redis_link_call(link, 1, (const char *[]) {"INFO"});
	const char *why_not = NULL;

	if (reply == NULL)
		return false;
	if (reply->type == REDIS_REPLY_STRING)
	{
		why_not = why_not_usable(reply->str, clustered);
		note_eviction(reply->str, clustered);
	}
	else if (hangs_up(reply))
		redis_link_fail_with_reply(link, reply, "it refuses connections");
	freeReplyObject(reply);
	if (why_not)
		redis_link_fail(link, "%s", why_not);
	return redis_link_is_open(link);
}

/* Check whether a server says why it is about to hang up, before it has read any command: what is sent next will not be answered. */
static bool
hangs_up(const redisReply *reply)
{
	static const char *const texts[] = {"ERR max number of clients", "DENIED "};

	for (int i = 0; i < lengthof(texts); i++)
	{
		if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, texts[i], strlen(texts[i])) == 0)
			return true;
	}
	return false;
}

/*
 * Returns why a server cannot be used, as INFO says; NULL if it can. A replica refuses
 * writes by itself, unless it is set to take them: its master undoes them some time.
 * (In a cluster it never takes any.)
 */
static const char *
why_not_usable(const char *info, bool clustered)
{
	if (!clustered && strstr(info, "cluster_enabled:1") != NULL)
		return "it is a node of a Redis Cluster, and outbox.redis_url does not begin with redis+cluster://";
	if (!clustered && strstr(info, "\nrole:slave\r") != NULL && strstr(info, "\nslave_read_only:0\r") != NULL)
		return "it is a replica that takes writes, which its master undoes";
	return NULL;
}

/*
 * Check whether we may add to streams at all; if not, closes the link. The script would find
 * out only amid messages. A user may add to some streams and not to our own key, so only an error
 * about the command counts; an entry with the id 0-0 is never added.
 */
bool
redis_server_may_add(RedisLink *link, const char *key)
{
	redisReply *reply = redis_link_call(link, 6, (const char *[]) {"XADD", key, "NOMKSTREAM", "0-0", "no", "entry"});
	bool		forbidden = reply && reply->type == REDIS_REPLY_ERROR && batch_verdict_forbids_command(reply->str);

	if (forbidden)
		redis_link_fail_with_reply(link, reply, "could not add to streams");
	if (reply)
		freeReplyObject(reply);
	return reply && !forbidden;
}

/*
 * Loads the script, on each connection, because Redis forgets scripts when it
 * restarts. Writes its hash to `sha`.
 */
bool
redis_server_load_script(RedisLink *link, char *sha)
{
	redisReply *reply = redis_link_call(link, 3, (const char *[]) {"SCRIPT", "LOAD", publish_script});
	bool		loaded = reply && reply->type == REDIS_REPLY_STRING && reply->len == 40;

	if (loaded)
		strlcpy(sha, reply->str, SCRIPT_SHA_BYTES);
	else if (reply)
		redis_link_fail_with_reply(link, reply, "could not load the script");
	if (reply)
		freeReplyObject(reply);
	return loaded;
}

/*
 * Notes whether the server may evict keys: the fence and the streams could get lost. That
 * one node of a cluster does not says nothing of the others.
 */
static void
note_eviction(const char *info, bool clustered)
{
	const char *policy = strstr(info, "maxmemory_policy:allkeys-");
	char		name[64];

	if (policy == NULL || strstr(info, "\nmaxmemory:0\r") != NULL)
	{
		if (!clustered)
			problem_clear(PROBLEM_EVICTION);
		return;
	}
	policy += strlen("maxmemory_policy:");
	foreign_text_copy(name, sizeof(name), policy, strcspn(policy, "\r\n"));
	problem_set(PROBLEM_EVICTION,
				"Redis may evict streams, the fence and the lease when its memory is full (maxmemory-policy %s). Set maxmemory-policy to noeviction.", name);
}
