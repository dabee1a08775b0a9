/*
 * nodes_away.c
 *		Masters of a Redis Cluster that cannot be used.
 *
 * Called by traffic.c, fence_claims.c and torn_slots.c. A master that is down may take
 * outbox.connect_timeout to be found so, and thousands of lanes may be on it. It is
 * tried once, for all of them, and not again with the next connection, until it is
 * time for that: when blocked lanes are tried (blocked_slots.c), and if none is blocked
 * FORGET_AFTER_MS after the last of them was found. So while it is away, others are not
 * held up by it each time; and once it is back, it is asked again which slots it moves.
 * One that was reached and refuses what we need, as the script, is not used either, but it
 * can tell which slots it moves.
 * Nothing here talks to Redis.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/connection/nodes_away.h"
#include "src/clock.h"
#include "src/foreign_text.h"

#define FORGET_AFTER_MS		10000

typedef struct NodeAway
{
	RedisNode	node;
	bool		refuses;		/* it was reached */
	char		why[LINK_ERROR_BYTES];
} NodeAway;

static NodeAway *nodes;
static int	nnodes;
static int	room;
static TimestampTz forget_at;

static void add(const RedisNode *node, bool refuses, const char *why);

/* Notes that a master could not be reached, and why. */
void
nodes_away_add(const RedisNode *node, const char *why)
{
	add(node, false, why);
}

/* Notes that a master was reached, but cannot be used, and why. */
void
nodes_away_add_refusing(const RedisNode *node, const char *why)
{
	add(node, true, why);
}

/* Notes that a master cannot be used. */
static void
add(const RedisNode *node, bool refuses, const char *why)
{
	if (nnodes == room)
	{
		room = Max(4, 2 * room);
		nodes = nodes ? repalloc(nodes, room * sizeof(NodeAway)) : MemoryContextAlloc(TopMemoryContext, room * sizeof(NodeAway));
	}
	/* To find several takes so long that the first would be due again. */
	forget_at = TimestampTzPlusMilliseconds(clock_now(), FORGET_AFTER_MS);
	nodes[nnodes].node = *node;
	nodes[nnodes].refuses = refuses;
	strlcpy(nodes[nnodes].why, why, sizeof(nodes[nnodes].why));
	nnodes++;
}

/* Returns why a master cannot be used; NULL if that is not known of it. */
const char *
nodes_away_why(const RedisNode *node)
{
	if (nnodes > 0 && clock_now() >= forget_at)
		nodes_away_forget();
	for (int i = 0; i < nnodes; i++)
	{
		if (redis_node_is(&nodes[i].node, node))
			return nodes[i].why;
	}
	return NULL;
}

/* Returns why one of them could not be reached; NULL if that is known of none. */
const char *
nodes_away_any(void)
{
	for (int i = 0; i < nnodes; i++)
	{
		if (!nodes[i].refuses)
			return nodes[i].why;
	}
	return NULL;
}

/* Check whether a master could not be reached. */
bool
nodes_away_include(const RedisNode *node)
{
	bool		unusable = nodes_away_why(node) != NULL;

	for (int i = 0; unusable && i < nnodes; i++)
	{
		if (!nodes[i].refuses && redis_node_is(&nodes[i].node, node))
			return true;
	}
	return false;
}

/* Forgets all of them: each may be tried again. */
void
nodes_away_forget(void)
{
	nnodes = 0;
}
