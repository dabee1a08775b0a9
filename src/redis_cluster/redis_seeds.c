/*
 * redis_seeds.c
 *		Finds a node of a Redis Cluster that lets us in.
 *
 * Called by redis_cluster.c. The nodes of the URL are tried first, then those that
 * a node has named before. One that says that the cluster is down may be cut off from
 * the others, and one that does not say may be loading its data: such a one is taken only
 * if no other lets us in. One that lets us in may refuse what is asked for after that, as
 * each has its own permissions: so after a refusal another one comes first. Each node gets its
 * share of what is left of the time, so one that does not answer does not use up all of it.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/redis/redis_connect.h"
#include "src/redis_cluster/redis_seeds.h"
#include "src/settings.h"

#define MOST_SHARES		4		/* the time is not divided into more, however
								 * many nodes there are: none would be enough
								 * for one that is distant */

static bool try_node(RedisLink *link, const RedisCredentials *credentials, const RedisNode *node, TimestampTz deadline, bool *is_up);
static bool says_that_it_is_up(RedisLink *link);

/*
 * Connects a link to one of the nodes of the URL, or of the last map (NULL = none): to
 * the first one that says that the cluster is up, otherwise to one that lets us in. After so many
 * refusals others are the first. Returns false if none lets us in; the link has the error.
 */
bool
redis_seeds_connect(RedisLink *link, const RedisCredentials *credentials, const SlotMap *map, uint32 refusals)
{
	const RedisUrl *url = &credentials->url;
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);
	int			n = url->nnodes + (map ? map->nnodes : 0);
	const RedisNode *open_node = NULL;

	for (int i = 0; i < n; i++)
	{
		int			place = (refusals + i) % n;
		const RedisNode *node = place < url->nnodes ? &url->nodes[place] : &map->nodes[place - url->nnodes];
		bool		is_up;

		if (i > 0 && clock_now() >= deadline)
			break;
		if (!try_node(link, credentials, node, clock_share(deadline, Min(n - i, MOST_SHARES)), &is_up))
			continue;
		if (is_up)
			return true;
		open_node = node;
	}
	deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);
	return open_node && redis_connect_to_node(link, credentials, open_node, deadline);
}

/* Connects the link to a node within a deadline. Sets *is_up to whether it says that the cluster is. */
static bool
try_node(RedisLink *link, const RedisCredentials *credentials, const RedisNode *node, TimestampTz deadline, bool *is_up)
{
	if (!redis_connect_to_node(link, credentials, node, deadline))
		return false;
	redis_link_limit(link, deadline);
	*is_up = says_that_it_is_up(link);
	redis_link_limit(link, 0);
	return redis_link_is_open(link);
}

/* Check whether a node says that the cluster is up. If we may not ask, it is assumed to be; one that is loading its data answers nobody. */
static bool
says_that_it_is_up(RedisLink *link)
{
	redisReply *reply = redis_link_call(link, 2, (const char *[]) {"CLUSTER", "INFO"});
	bool		is_up = reply && (reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "cluster_state:ok") != NULL :
								  reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM ", strlen("NOPERM ")) == 0);

	if (reply)
		freeReplyObject(reply);
	return is_up;
}
