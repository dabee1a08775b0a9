/*
 * migrating_slots.h
 *		Which hash slots of a Redis Cluster are on their way from node to node.
 */
#ifndef OUTBOX_MIGRATING_SLOTS_H
#define OUTBOX_MIGRATING_SLOTS_H

#include "src/redis_cluster/hash_slot.h"
#include "src/redis_cluster/redis_cluster.h"

/* What masters say of a slot. */
#define SLOT_LEAVES		1		/* one gives it away */
#define SLOT_COMES		2		/* one takes it over */

/* Check whether a node is known not to answer. */
typedef bool (*NodeIsAway) (const RedisNode *node);

/* Called with a node that has not answered, and why. */
typedef void (*NodeNoteAway) (const RedisNode *node, const char *why);

extern bool migrating_slots_read(RedisCluster *cluster, NodeIsAway is_away, NodeNoteAway note_away, uint8 moving[HASH_SLOTS], bool *all_answered);

#endif							/* OUTBOX_MIGRATING_SLOTS_H */
