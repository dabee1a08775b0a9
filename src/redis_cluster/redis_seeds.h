/*
 * redis_seeds.h
 *		Finds a node of a Redis Cluster that lets us in.
 */
#ifndef OUTBOX_REDIS_SEEDS_H
#define OUTBOX_REDIS_SEEDS_H

#include "src/redis/redis_credentials.h"
#include "src/redis_cluster/slot_map.h"

extern bool redis_seeds_connect(RedisLink *link, const RedisCredentials *credentials, const SlotMap *map, uint32 refusals);

#endif							/* OUTBOX_REDIS_SEEDS_H */
