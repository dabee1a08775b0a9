/*
 * redis_seeds.h
 *		Finds a node of a Redis Cluster that lets us in.
 */
#ifndef OUTBOX_REDIS_SEEDS_H
#define OUTBOX_REDIS_SEEDS_H

#include "src/redis/redis_login.h"
#include "src/redis_cluster/slot_map.h"

extern bool redis_seeds_connect(RedisLink *link, const RedisLogin *login, const SlotMap *map);

#endif							/* OUTBOX_REDIS_SEEDS_H */
