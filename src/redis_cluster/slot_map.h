/*
 * slot_map.h
 *		Which master of a Redis Cluster serves which hash slot.
 */
#ifndef OUTBOX_SLOT_MAP_H
#define OUTBOX_SLOT_MAP_H

#include <hiredis.h>

#include "src/redis/redis_url.h"
#include "src/redis_cluster/hash_slot.h"

#define SLOT_MAP_NODES	1024	/* a cluster should have no more than 1000 */
#define SLOT_UNSERVED	(-1)

typedef struct SlotMap
{
	bool		names_hosts;	/* nodes are to be reached by their names, as
								 * far as they have one */
	char		host[256];		/* all are to be reached by that, whatever
								 * else is known of them; empty = each by its
								 * own */
	int			nnodes;			/* masters that serve a slot */
	RedisNode	nodes[SLOT_MAP_NODES];
	int16		node_of[HASH_SLOTS];	/* place in nodes, or SLOT_UNSERVED */
} SlotMap;

extern bool slot_map_read_moved(const redisReply *reply, const char *asked, int *slot, RedisNode *node);
extern bool slot_map_read_ask(const redisReply *reply, const char *asked, int *slot, RedisNode *node);
extern void slot_map_set(SlotMap *map, int slot, const RedisNode *node);
extern bool slot_map_read(SlotMap *map, const redisReply *reply, const char *asked);

#endif							/* OUTBOX_SLOT_MAP_H */
