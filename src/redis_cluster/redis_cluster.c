/*
 * redis_cluster.c
 *		The connections to a Redis Cluster, or the one to a single Redis.
 *
 * Called by send.c, redis_lease.c and migrating_slots.c. There is a roaming link,
 * on which nothing is ever left under way: it goes to any node that lets us in, reads
 * the map there, and calls what has one key, following that key from node to node.
 * And there is a link to each master that is needed, opened when it is asked for. A
 * single Redis has all slots, and the roaming link is the only one.
 *
 * A node may be out of date, or cut off from the others. So which one the roaming link
 * begins with matters (redis_seeds.c), and what a node says with MOVED is noted in the
 * map.
 *
 * It never sends READONLY, which would read what may be old, nor ASKING, which would
 * let a script add to a second copy of a stream.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/foreign_text.h"
#include "src/redis/redis_connect.h"
#include "src/redis/redis_credentials.h"
#include "src/redis/resp.h"
#include "src/redis_cluster/master_links.h"
#include "src/redis_cluster/redis_cluster.h"
#include "src/redis_cluster/redis_seeds.h"
#include "src/settings.h"

#define MAX_HOPS	5			/* from node to node, for one command */

struct RedisCluster
{
	LinkAttend	attend;
	LinkPrepare prepare;		/* NULL = nothing is to be done */
	char	   *url;			/* NULL = that of the settings */
	bool		has_slots;		/* the URL names a cluster */
	uint64		url_hash;		/* of the URL of the roaming link */
	RedisLink  *roaming;
	uint32		refusals;		/* so often what was asked there was refused */
	SlotMap    *map;			/* the last one that was read; NULL = none yet */
	bool		map_is_known;	/* since the roaming link was opened */
	int			patience_ms;	/* in which a master is reached; 0 = as set */
	MasterLinks masters;
	char		error[LINK_ERROR_BYTES];
};

static TimestampTz connect_deadline(const RedisCluster *cluster);
static bool prepare_within(RedisCluster *cluster, RedisLink *link, TimestampTz deadline);
static bool open_roaming(RedisCluster *cluster);
static void forget_map_of_another(RedisCluster *cluster, uint64 hash);
static bool read_map(RedisCluster *cluster, const redisReply *reply);
static bool read_moved(RedisCluster *cluster, const RedisLink *link, const redisReply *reply, int *slot, RedisNode *node);
static bool fail_as(RedisCluster *cluster, const RedisLink *link);

/* Makes one that is closed, until redis_cluster_free(). `prepare` is called with each link to a master that was opened, unless NULL. */
RedisCluster *
redis_cluster_create(LinkAttend attend, LinkPrepare prepare)
{
	RedisCluster *cluster = MemoryContextAllocZero(TopMemoryContext, sizeof(RedisCluster));

	cluster->attend = attend;
	cluster->prepare = prepare;
	cluster->roaming = redis_link_create(attend);
	return cluster;
}

/* Closes and frees all of it. */
void
redis_cluster_free(RedisCluster *cluster)
{
	redis_cluster_close(cluster);
	redis_link_free(cluster->roaming);
	if (cluster->url)
		pfree(cluster->url);
	if (cluster->map)
		pfree(cluster->map);
	pfree(cluster);
}

/*
 * Connects to a Redis, or to any node of a cluster, as the URL says; NULL = as the
 * settings say. Returns false if that fails; see redis_cluster_error(). All links of
 * before are closed.
 */
bool
redis_cluster_open(RedisCluster *cluster, const char *url)
{
	redis_cluster_close(cluster);
	if (cluster->url)
		pfree(cluster->url);
	cluster->url = NULL;
	cluster->url = url ? MemoryContextStrdup(TopMemoryContext, url) : NULL;
	return open_roaming(cluster);
}

/* Closes all links; those to masters are freed. */
void
redis_cluster_close(RedisCluster *cluster)
{
	redis_link_close(cluster->roaming);
	master_links_free(&cluster->masters);
	cluster->map_is_known = false;
}

/* Check whether keys are in slots, which may be on several nodes. */
bool
redis_cluster_has_slots(const RedisCluster *cluster)
{
	return cluster->has_slots;
}

/* Returns why the last call here has failed. Contains no password. */
const char *
redis_cluster_error(const RedisCluster *cluster)
{
	return cluster->error;
}

/*
 * Returns the link to the master that has a slot, open and prepared; NULL if there is
 * none. One that has failed is opened again. It stays where it is until all are closed.
 */
RedisLink *
redis_cluster_link(RedisCluster *cluster, int slot)
{
	const RedisNode *node;

	if (!cluster->has_slots)
		return redis_link_is_open(cluster->roaming) || open_roaming(cluster) ? cluster->roaming : NULL;
	if (!cluster->map_is_known && !redis_cluster_refresh(cluster))
		return NULL;
	node = redis_cluster_node_of(cluster, slot);
	if (node == NULL)
	{
		snprintf(cluster->error, sizeof(cluster->error), "no node of the Redis Cluster serves the hash slot %d", slot);
		return NULL;
	}
	return redis_cluster_link_to(cluster, node);
}

/* The same for a node of the cluster. */
RedisLink *
redis_cluster_link_to(RedisCluster *cluster, const RedisNode *node)
{
	MasterLink *master = master_links_find(&cluster->masters, node, cluster->attend);
	TimestampTz deadline;

	if (redis_link_is_open(master->link))
		return master->link;
	deadline = connect_deadline(cluster);
	if (redis_connect_again(master->link, cluster->url, cluster->url_hash, &master->node, deadline) &&
		prepare_within(cluster, master->link, deadline))
		return master->link;
	(void) fail_as(cluster, master->link);
	return NULL;
}

/* Sets how long reaching a master may take from now on, in milliseconds; 0 = as long as the settings say. */
void
redis_cluster_limit(RedisCluster *cluster, int ms)
{
	cluster->patience_ms = ms;
}

/* Returns the node that serves a slot, as the map says that was read last; NULL if none does. */
const RedisNode *
redis_cluster_node_of(const RedisCluster *cluster, int slot)
{
	int			place = cluster->map ? cluster->map->node_of[slot] : SLOT_UNSERVED;

	return place == SLOT_UNSERVED ? NULL : &cluster->map->nodes[place];
}

/*
 * Reads the map again; connects the roaming link again if it has failed. Returns false
 * if no node says which one serves what. Links to masters stay as they are.
 */
bool
redis_cluster_refresh(RedisCluster *cluster)
{
	redisReply *reply;
	bool		read;

	if (!cluster->has_slots)
		return true;
	if (!redis_link_is_open(cluster->roaming) && !open_roaming(cluster))
		return false;
	reply = redis_link_call(cluster->roaming, 2, (const char *[]) {"CLUSTER", "SLOTS"});
	read = reply && read_map(cluster, reply);
	if (reply && !read)
		redis_cluster_fail_with_reply(cluster, reply, "could not read which node serves which slot");
	if (reply)
		freeReplyObject(reply);
	return read || fail_as(cluster, cluster->roaming);
}

/*
 * The same from a node that says that the cluster is up, if there is one: the node that
 * the roaming link is at may be cut off from the others by now, and does not know it.
 */
bool
redis_cluster_refresh_elsewhere(RedisCluster *cluster)
{
	redis_link_close(cluster->roaming);
	return redis_cluster_refresh(cluster);
}

/*
 * If a reply of a link says that a slot has moved, notes where it is now and returns
 * true. What was asked for was not done then.
 */
bool
redis_cluster_follow(RedisCluster *cluster, const RedisLink *link, const redisReply *reply)
{
	RedisNode	node;
	int			slot;

	if (!read_moved(cluster, link, reply, &slot, &node))
		return false;
	if (cluster->map_is_known)
		slot_map_set(cluster->map, slot, &node);
	return true;
}

/*
 * Sends a command that has one key, or keys of one slot, on the roaming link, which
 * goes to the node that has it, and returns the reply. Returns NULL if that fails.
 * The caller must free the reply before it does anything that can raise an error.
 */
redisReply *
redis_cluster_command(RedisCluster *cluster, const char *command, size_t size)
{
	RedisLink  *link = cluster->roaming;

	if (!redis_link_is_open(link) && !open_roaming(cluster))
		return NULL;
	for (int hops = 0;; hops++)
	{
		redisReply *reply = redis_link_send(link, command, size) ? redis_link_receive(link) : NULL;
		RedisNode	node;
		int			slot;

		if (reply == NULL)
			(void) fail_as(cluster, link);
		if (reply == NULL || hops == MAX_HOPS || !read_moved(cluster, link, reply, &slot, &node))
			return reply;
		freeReplyObject(reply);
		if (!redis_cluster_roam(cluster, &node))
			return NULL;
		redis_cluster_stay(cluster);
	}
}

/* The same for a command that is given as strings. */
redisReply *
redis_cluster_call(RedisCluster *cluster, int argc, const char **argv)
{
	StringInfoData command;
	redisReply *reply;

	initStringInfo(&command);
	resp_put_command(&command, argc, argv);
	reply = redis_cluster_command(cluster, command.data, command.len);
	pfree(command.data);
	return reply;
}

/*
 * Sends a command to the master that has a key, if there is a link to it, otherwise to
 * the node that the roaming link is at, and waits for nothing. The links must be closed next.
 */
void
redis_cluster_tell(RedisCluster *cluster, const char *key, int argc, const char **argv)
{
	RedisLink  *link = cluster->roaming;
	const RedisNode *node = cluster->map_is_known ? redis_cluster_node_of(cluster, hash_slot_of(key, strlen(key))) : NULL;
	MasterLink *master = node ? master_links_find(&cluster->masters, node, cluster->attend) : NULL;

	if (master && redis_link_is_open(master->link))
		link = master->link;
	if (redis_link_is_open(link))
		(void) redis_link_send_strings(link, argc, argv);
}

/*
 * The same on the link to the master that has the key, which has to be among the
 * arguments; nothing may be under way there.
 */
redisReply *
redis_cluster_call_master(RedisCluster *cluster, const char *key, int argc, const char **argv)
{
	int			slot = hash_slot_of(key, strlen(key));

	for (int hops = 0;; hops++)
	{
		RedisLink  *link = redis_cluster_link(cluster, slot);
		redisReply *reply;

		if (link == NULL)
			return NULL;
		reply = redis_link_call(link, argc, argv);
		if (reply == NULL)
			(void) fail_as(cluster, link);
		if (reply == NULL || hops == MAX_HOPS || !redis_cluster_follow(cluster, link, reply))
			return reply;
		freeReplyObject(reply);
	}
}

/*
 * Connects the roaming link to a node of the cluster. Returns false if that fails. Where
 * redis_cluster_limit() holds, the node must also answer in that time until
 * redis_cluster_stay() is called.
 */
bool
redis_cluster_roam(RedisCluster *cluster, const RedisNode *node)
{
	TimestampTz deadline = connect_deadline(cluster);
	bool		connected = redis_connect_again(cluster->roaming, cluster->url, cluster->url_hash, node, deadline);

	if (cluster->patience_ms > 0)
		redis_link_limit(cluster->roaming, connected ? deadline : 0);
	return connected || fail_as(cluster, cluster->roaming);
}

/* Ends the limit that redis_cluster_roam() has set. */
void
redis_cluster_stay(RedisCluster *cluster)
{
	redis_link_limit(cluster->roaming, 0);
}

/* Returns the map that was read last; NULL if there is none. It is valid until the next one is read. */
const SlotMap *
redis_cluster_map(const RedisCluster *cluster)
{
	return cluster->map;
}

/* Closes the roaming link for a reason. */
void
redis_cluster_fail(RedisCluster *cluster, const char *reason)
{
	redis_link_fail(cluster->roaming, "%s", reason);
	(void) fail_as(cluster, cluster->roaming);
}

/* Notes that a reply of redis_cluster_call() was not the expected one, and closes the roaming link; the next node may know better. */
void
redis_cluster_fail_with_reply(RedisCluster *cluster, const redisReply *reply, const char *what)
{
	redis_link_fail_with_reply(cluster->roaming, reply, what);
	cluster->refusals++;
	(void) fail_as(cluster, cluster->roaming);
}

/* Returns until when a node that is tried now must be reached. */
static TimestampTz
connect_deadline(const RedisCluster *cluster)
{
	return TimestampTzPlusMilliseconds(clock_now(), cluster->patience_ms > 0 ? cluster->patience_ms : outbox_connect_timeout);
}

/* Prepares a link to a master that was opened. Returns false if that fails, or takes too long. */
static bool
prepare_within(RedisCluster *cluster, RedisLink *link, TimestampTz deadline)
{
	bool		prepared;

	redis_link_limit(link, deadline);
	prepared = !cluster->prepare || cluster->prepare(link);
	redis_link_limit(link, 0);
	return prepared;
}

/* Connects the roaming link. Returns false if that fails. */
static bool
open_roaming(RedisCluster *cluster)
{
	RedisCredentials credentials;
	bool		opened = redis_credentials_read(&credentials, cluster->url, cluster->roaming);

	cluster->has_slots = credentials.url.cluster;
	forget_map_of_another(cluster, credentials.hash);
	if (opened && cluster->has_slots)
		opened = redis_seeds_connect(cluster->roaming, &credentials, cluster->map, cluster->refusals);
	else if (opened)
		opened = redis_connect_to(cluster->roaming, &credentials) && (!cluster->prepare || cluster->prepare(cluster->roaming));
	redis_credentials_wipe(&credentials);
	return opened || fail_as(cluster, cluster->roaming);
}

/* Nodes that another URL led to may be those of another cluster: they are not to be tried. */
static void
forget_map_of_another(RedisCluster *cluster, uint64 hash)
{
	if (cluster->map && cluster->url_hash != hash)
	{
		pfree(cluster->map);
		cluster->map = NULL;
		cluster->map_is_known = false;
	}
	cluster->url_hash = hash;
}

/* Reads a new map. Returns false if the reply is none; then the old one stays. */
static bool
read_map(RedisCluster *cluster, const redisReply *reply)
{
	SlotMap    *fresh = MemoryContextAllocExtended(TopMemoryContext, sizeof(SlotMap), MCXT_ALLOC_NO_OOM);

	if (fresh == NULL || !slot_map_read(fresh, reply, redis_link_host(cluster->roaming)))
	{
		if (fresh)
			pfree(fresh);
		return false;
	}
	if (cluster->map)
		pfree(cluster->map);
	cluster->map = fresh;
	cluster->map_is_known = true;
	return true;
}

/* Reads where a slot has moved; one whose node has no name is in the map that any node has. A single Redis leads nowhere. */
static bool
read_moved(RedisCluster *cluster, const RedisLink *link, const redisReply *reply, int *slot, RedisNode *node)
{
	const RedisNode *found = node;

	if (!cluster->has_slots || !slot_map_read_moved(reply, redis_link_host(link), slot, node))
		return false;
	if (node->host[0] == '\0')
		found = redis_cluster_refresh(cluster) ? redis_cluster_node_of(cluster, *slot) : NULL;
	if (found)
		*node = *found;
	return found != NULL;
}

/* Notes why a link has failed. Returns false. */
static bool
fail_as(RedisCluster *cluster, const RedisLink *link)
{
	strlcpy(cluster->error, redis_link_error(link), sizeof(cluster->error));
	return false;
}
