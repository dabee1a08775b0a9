/*
 * moving_slots.h
 *		Which hash slots of a Redis Cluster are on their way from node to node.
 */
#ifndef OUTBOX_MOVING_SLOTS_H
#define OUTBOX_MOVING_SLOTS_H

#include "src/redis/hash_slot.h"
#include "src/redis/redis_cluster.h"

extern bool moving_slots_read(RedisCluster *cluster, bool moving[HASH_SLOTS]);

#endif							/* OUTBOX_MOVING_SLOTS_H */
