/*
 * migrating_slots.c
 *		Which hash slots of a Redis Cluster are on their way from node to node.
 *
 * Called by torn_slots.c. A key that is missing in such a slot may be on the other node; so it must not be
 * taken for lost. Only the two nodes know of the move, and if the source fails over
 * Redis 7 forgets it there. So all masters are asked, also those without slots. One
 * that has failed, as the others say, cannot be asked: a node that has left for good
 * would otherwise hold up everything. One that does not answer and has not failed yet may
 * know of a move that no other node knows of.
 */
#include "postgres.h"

#include "src/redis/redis_url.h"
#include "src/redis_cluster/migrating_slots.h"

/* What a line of CLUSTER NODES consists of, up to the slots. */
#define NODE_ADDRESS	1		/* host:port@port,name,... */
#define NODE_FLAGS		2		/* myself,master,... */
#define NODE_SLOTS		8

static char *ask_for_nodes(RedisCluster *cluster);
static bool is_master(char *const *words, int n);
static bool has_flag(const char *flags, const char *flag);
static bool read_address(const char *text, const SlotMap *map, RedisNode *node);
static const char *name_in(const char *text);
static void note_own(char *text, uint8 moving[HASH_SLOTS]);
static char *next_line(char **text);
static int	split(char *line, char **words, int room);

/*
 * Asks all masters which slots they are giving away or taking over, but for those that
 * are away; one that does not answer is noted as away. *all_answered tells whether all
 * did. Returns false if no node tells which ones there are; see redis_cluster_error().
 * Allocates in the current context.
 */
bool
migrating_slots_read(RedisCluster *cluster, NodeIsAway is_away, NodeNoteAway note_away, uint8 moving[HASH_SLOTS], bool *all_answered)
{
	char	   *nodes = ask_for_nodes(cluster);
	char	   *rest = nodes;
	char	   *line;

	memset(moving, 0, HASH_SLOTS);
	*all_answered = true;
	if (nodes == NULL)
		return false;
	while ((line = next_line(&rest)) != NULL)
	{
		char	   *words[NODE_SLOTS];
		int			n = split(line, words, NODE_SLOTS);
		RedisNode	node;
		char	   *own = NULL;

		if (!is_master(words, n) || !read_address(words[NODE_ADDRESS], redis_cluster_map(cluster), &node))
			continue;
		if (!has_flag(words[NODE_FLAGS], "fail?") && !is_away(&node))
		{
			own = redis_cluster_roam(cluster, &node) ? ask_for_nodes(cluster) : NULL;
			redis_cluster_stay(cluster);
			if (own == NULL)
				note_away(&node, redis_cluster_error(cluster));
		}
		if (own)
		{
			note_own(own, moving);
			pfree(own);
		}
		else
			*all_answered = false;
	}
	pfree(nodes);
	return true;
}

/* Returns what the node that the roaming link is at says of all nodes; NULL if it does not. */
static char *
ask_for_nodes(RedisCluster *cluster)
{
	redisReply *reply = redis_cluster_call(cluster, 2, (const char *[]) {"CLUSTER", "NODES"});
	char	   *nodes = NULL;

	if (reply && reply->type == REDIS_REPLY_STRING)
		nodes = MemoryContextAllocExtended(CurrentMemoryContext, reply->len + 1, MCXT_ALLOC_NO_OOM);
	if (nodes)
		memcpy(nodes, reply->str, reply->len + 1);
	else if (reply)
		redis_cluster_fail_with_reply(cluster, reply, "could not read which hash slots are moving");
	if (reply)
		freeReplyObject(reply);
	return nodes;
}

/* Check whether a line is of a master that can be asked. */
static bool
is_master(char *const *words, int n)
{
	return n > NODE_FLAGS && has_flag(words[NODE_FLAGS], "master") && !has_flag(words[NODE_FLAGS], "fail") &&
		!has_flag(words[NODE_FLAGS], "noaddr") && !has_flag(words[NODE_FLAGS], "handshake");
}

/* Check whether a flag is in a list with commas. */
static bool
has_flag(const char *flags, const char *flag)
{
	size_t		length = strlen(flag);

	for (const char *at = flags; at != NULL; at = strchr(at, ','))
	{
		if (*at == ',')
			at++;
		if (strncmp(at, flag, length) == 0 && (at[length] == ',' || at[length] == '\0'))
			return true;
	}
	return false;
}

/*
 * Reads "host:port@port,name,...": where a node is reached, in the same way as those that the
 * map has. The name is taken if there is one and nodes are reached by names.
 */
static bool
read_address(const char *text, const SlotMap *map, RedisNode *node)
{
	const char *end = text + strcspn(text, "@,");
	const char *host = text;
	const char *colon = end;
	size_t		length;

	while (colon > text && *colon != ':')
		colon--;
	node->port = atoi(colon + 1);
	length = colon - text;
	if (map && map->host[0] != '\0')
	{
		host = map->host;
		length = strlen(host);
	}
	else if (map && map->names_hosts && name_in(end))
	{
		host = name_in(end);
		length = strcspn(host, ",");
	}
	if (length == 0 || length >= sizeof(node->host))
		return false;
	memcpy(node->host, host, length);
	node->host[length] = '\0';
	return node->port > 0 && node->port <= 65535;
}

/* Returns the name in "@port,name,key=value,...", which ends at the next comma or the end; NULL if there is none. */
static const char *
name_in(const char *text)
{
	const char *name = strchr(text, ',');
	size_t		length = name ? strcspn(name + 1, ",=") : 0;

	return length > 0 && name[1 + length] != '=' ? name + 1 : NULL;
}

/* Notes the slots that a node itself gives away, "[slot->-id]", or takes over, "[slot-<-id]". */
static void
note_own(char *text, uint8 moving[HASH_SLOTS])
{
	char	   *line;

	while ((line = next_line(&text)) != NULL)
	{
		if (strstr(line, "myself") == NULL)
			continue;
		for (char *at = strchr(line, '['); at != NULL; at = strchr(at + 1, '['))
		{
			char	   *end;
			long		slot = strtol(at + 1, &end, 10);

			if (slot >= 0 && slot < HASH_SLOTS)
				moving[slot] |= strncmp(end, "-<-", 3) == 0 ? SLOT_COMES : SLOT_LEAVES;
		}
	}
}

/* Cuts off the first line. Returns NULL if there is none. */
static char *
next_line(char **text)
{
	char	   *line = *text;
	char	   *end = line + strcspn(line, "\n");

	if (*line == '\0')
		return NULL;
	*text = *end == '\0' ? end : end + 1;
	*end = '\0';
	return line;
}

/* Cuts a line into words, as many as there is room for. Returns how many. */
static int
split(char *line, char **words, int room)
{
	char	   *rest;
	char	   *word = strtok_r(line, " ", &rest);
	int			n = 0;

	for (; n < room && word != NULL; word = strtok_r(NULL, " ", &rest))
		words[n++] = word;
	return n;
}
