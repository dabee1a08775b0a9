/*
 * cluster_lease.h
 *		The lease in a Redis Cluster, where it is in a slot of its own.
 */
#ifndef OUTBOX_CLUSTER_LEASE_H
#define OUTBOX_CLUSTER_LEASE_H

#include "src/redis_cluster/redis_cluster.h"

extern bool cluster_lease_look(RedisCluster *redis, const char *key, const char *last_owner, bool *may_be_taken);
extern bool cluster_lease_renew(RedisCluster *redis, const char *key);
extern bool cluster_lease_keep(RedisCluster *redis, const char *key);
extern void cluster_lease_release(RedisCluster *redis, const char *key);

#endif							/* OUTBOX_CLUSTER_LEASE_H */
