/*
 * redis_lease.h
 *		The lease as Redis has it: looks at it, renews it and releases it.
 */
#ifndef OUTBOX_REDIS_LEASE_H
#define OUTBOX_REDIS_LEASE_H

#include "src/redis_cluster/redis_cluster.h"

extern bool redis_lease_look(RedisCluster *redis, const char *key, const char *last_owner, bool *may_be_taken);
extern bool redis_lease_renew(RedisCluster *redis, const char *key);
extern bool redis_lease_keep(RedisCluster *redis, const char *key);
extern void redis_lease_release(RedisCluster *redis, const char *key);

#endif							/* OUTBOX_REDIS_LEASE_H */
