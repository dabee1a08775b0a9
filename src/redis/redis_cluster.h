/*
 * redis_cluster.h
 *		The connections to a Redis Cluster, or the one to a single Redis.
 */
#ifndef OUTBOX_REDIS_CLUSTER_H
#define OUTBOX_REDIS_CLUSTER_H

#include "src/redis/redis_link.h"

typedef struct RedisCluster RedisCluster;

/* Prepares a link to a master that was just opened. Returns false if it cannot be used; the link then has the error. */
typedef bool (*LinkPrepare) (RedisLink *link);

extern RedisCluster *redis_cluster_create(LinkAttend attend, LinkPrepare prepare);
extern void redis_cluster_free(RedisCluster *cluster);
extern bool redis_cluster_open(RedisCluster *cluster, const char *url);
extern void redis_cluster_close(RedisCluster *cluster);
extern bool redis_cluster_has_slots(const RedisCluster *cluster);
extern const char *redis_cluster_error(const RedisCluster *cluster);

extern RedisLink *redis_cluster_link(RedisCluster *cluster, int slot);
extern bool redis_cluster_refresh(RedisCluster *cluster);
extern bool redis_cluster_follow(RedisCluster *cluster, const RedisLink *link, const redisReply *reply);
extern redisReply *redis_cluster_call(RedisCluster *cluster, const char *command, size_t size);
extern void redis_cluster_refused(RedisCluster *cluster, const redisReply *reply, const char *what);

#endif							/* OUTBOX_REDIS_CLUSTER_H */
