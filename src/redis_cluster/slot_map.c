/*
 * slot_map.c
 *		Which master of a Redis Cluster serves which hash slot.
 *
 * Called by redis_cluster.c and redis_parts.c.
 * Reads the reply to CLUSTER SLOTS, which all versions know. Any node may be asked;
 * what it says may be out of date, and a node that does not serve a slot any more
 * says so (MOVED). Nothing here talks to Redis. It allocates nothing and raises no
 * error; t/321 compares it with a real cluster.
 */
#include "postgres.h"

#include <ctype.h>

#include "src/redis_cluster/slot_map.h"

#define NO_NAME		"?"			/* host of a node that is to have a name and
								 * has none */

static bool read_redirection(const redisReply *reply, const char *word, const char *asked, int *slot, RedisNode *node);
static bool read_range(SlotMap *map, const redisReply *range, const char *asked);
static bool read_node(const redisReply *reply, const char *asked, RedisNode *node);
static void note_kind(SlotMap *map, const redisReply *reply, const char *asked);
static bool is_name(const char *host);
static const redisReply *find_address(const redisReply *reply);
static bool is_array(const redisReply *reply, size_t elements);
static bool is_slot(const redisReply *reply);
static bool copy_host(const char *host, RedisNode *node);
static int	enter_node(SlotMap *map, const RedisNode *node);

/*
 * Reads a reply to CLUSTER SLOTS of the host `asked`. Slots of a node that has no
 * address count as not served. Returns false if it is not such a reply.
 */
bool
slot_map_read(SlotMap *map, const redisReply *reply, const char *asked)
{
	map->nnodes = 0;
	map->names_hosts = false;
	map->host[0] = '\0';
	for (int slot = 0; slot < HASH_SLOTS; slot++)
		map->node_of[slot] = SLOT_UNSERVED;
	if (!is_array(reply, 0))
		return false;
	for (size_t i = 0; i < reply->elements; i++)
	{
		if (!read_range(map, reply->element[i], asked))
			return false;
	}
	return true;
}

/*
 * Reads an error "MOVED <slot> <host>:<port>" of the host `asked`: which node serves
 * which slot. A host that is missing is the one that was asked. It is empty if the node is to
 * have a name and has none: only CLUSTER SLOTS tells its address. Returns false if it is
 * not such an error; what was asked for was done then, or failed.
 */
bool
slot_map_read_moved(const redisReply *reply, const char *asked, int *slot, RedisNode *node)
{
	return read_redirection(reply, "MOVED ", asked, slot, node);
}

/* The same for "ASK <slot> <host>:<port>": the slot is on its way there, and so may be the key. No map has a node without a name. */
bool
slot_map_read_ask(const redisReply *reply, const char *asked, int *slot, RedisNode *node)
{
	return read_redirection(reply, "ASK ", asked, slot, node) && node->host[0] != '\0';
}

/* Reads an error that names a slot and a node. */
static bool
read_redirection(const redisReply *reply, const char *word, const char *asked, int *slot, RedisNode *node)
{
	const char *host;
	const char *colon;
	char	   *end;

	if (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, word, strlen(word)) != 0)
		return false;
	*slot = strtol(reply->str + strlen(word), &end, 10);
	host = *end == ' ' ? end + 1 : NULL;
	colon = host ? strrchr(host, ':') : NULL;
	if (colon == NULL || colon - host >= sizeof(node->host))
		return false;
	memcpy(node->host, host, colon - host);
	node->host[colon - host] = '\0';
	node->port = strtol(colon + 1, &end, 10);
	if (*end != '\0' || *slot < 0 || *slot >= HASH_SLOTS || node->port <= 0 || node->port > 65535)
		return false;
	if (strcmp(node->host, NO_NAME) != 0)
		return copy_host(colon == host ? asked : node->host, node);
	node->host[0] = '\0';
	return true;
}

/* Notes which node serves a slot now. */
void
slot_map_set(SlotMap *map, int slot, const RedisNode *node)
{
	map->node_of[slot] = enter_node(map, node);
}

/* Reads a range of slots: the first one, the last one, the master, its replicas. */
static bool
read_range(SlotMap *map, const redisReply *range, const char *asked)
{
	RedisNode	node;
	int			place = SLOT_UNSERVED;

	if (!is_array(range, 3) || !is_slot(range->element[0]) || !is_slot(range->element[1]) ||
		!is_array(range->element[2], 2))
		return false;
	note_kind(map, range->element[2], asked);
	if (read_node(range->element[2], asked, &node))
	{
		place = enter_node(map, &node);
		if (place < 0)
			return false;
	}
	for (int slot = range->element[0]->integer; slot <= range->element[1]->integer; slot++)
		map->node_of[slot] = place;
	return true;
}

/*
 * Notes by what the nodes of a cluster are to be reached, as the host of one of them shows:
 * by names (one that has none says "?"), by the host that was asked (NULL, which stands for all of
 * them), or by their addresses. A node that does not know its own address says "". What is announced
 * as an address may be a name, too; beside a name that is no address, the address is among what
 * else is known.
 */
static void
note_kind(SlotMap *map, const redisReply *reply, const char *asked)
{
	const redisReply *host = reply->element[0];
	RedisNode	node;

	if (host->type == REDIS_REPLY_STRING)
		map->names_hosts |= is_name(host->str) && (reply->elements < 4 || find_address(reply) != NULL);
	else if (host->type == REDIS_REPLY_NIL && copy_host(asked, &node))
		strlcpy(map->host, asked, sizeof(map->host));
}

/* Check whether a host is a name, or stands for one that is not known, and not an address. */
static bool
is_name(const char *host)
{
	return strspn(host, "0123456789.") != strlen(host) && strchr(host, ':') == NULL;
}

/*
 * Reads the address of a node: its host, port, id, and what else is known of it. It
 * may not know its own host: NULL then stands for the one that was asked. A node
 * that has to announce a name and has none says "?". Returns false if there is no
 * address.
 */
static bool
read_node(const redisReply *reply, const char *asked, RedisNode *node)
{
	const redisReply *host = reply->element[0];
	const redisReply *port = reply->element[1];

	if (port->type != REDIS_REPLY_INTEGER || port->integer <= 0 || port->integer > 65535)
		return false;
	node->port = port->integer;
	if (host->type == REDIS_REPLY_STRING && strcmp(host->str, NO_NAME) == 0)
		host = find_address(reply);
	if (host == NULL)
		return false;
	if (host->type == REDIS_REPLY_NIL || (host->type == REDIS_REPLY_STRING && host->len == 0))
		return copy_host(asked, node);
	return host->type == REDIS_REPLY_STRING && strlen(host->str) == host->len && copy_host(host->str, node);
}

/* Returns the numeric address among what else is known of a node, names and values in turn; NULL if it is not there. */
static const redisReply *
find_address(const redisReply *reply)
{
	const redisReply *known = reply->elements > 3 ? reply->element[3] : NULL;

	for (size_t i = 0; known && is_array(known, 0) && i + 1 < known->elements; i += 2)
	{
		if (known->element[i]->type == REDIS_REPLY_STRING && strcmp(known->element[i]->str, "ip") == 0)
			return known->element[i + 1];
	}
	return NULL;
}

/* Check whether a reply is an array with so many elements at least. */
static bool
is_array(const redisReply *reply, size_t elements)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements >= elements;
}

/* Check whether a reply is the number of a slot. */
static bool
is_slot(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer < HASH_SLOTS;
}

/* Copies a host, which the other side named. Returns false if it cannot be one. */
static bool
copy_host(const char *host, RedisNode *node)
{
	for (const char *c = host; *c != '\0'; c++)
	{
		if (!isgraph((unsigned char) *c) || IS_HIGHBIT_SET(*c))
			return false;
	}
	if (host[0] == '\0' || strcmp(host, NO_NAME) == 0 || strlen(host) >= sizeof(node->host))
		return false;
	memmove(node->host, host, strlen(host) + 1);
	return true;
}

/* Returns the place of a node in the map, where it is entered if it is new; -1 if there is no room. */
static int
enter_node(SlotMap *map, const RedisNode *node)
{
	/*
	 * The ranges of a master may be many; usually the one before is of the
	 * same.
	 */
	for (int place = map->nnodes - 1; place >= 0; place--)
	{
		if (redis_node_is(&map->nodes[place], node))
			return place;
	}
	if (map->nnodes == SLOT_MAP_NODES)
		return -1;
	map->nodes[map->nnodes] = *node;
	return map->nnodes++;
}
