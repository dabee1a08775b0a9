/*
 * redis_cluster.h
 *		The connections to a Redis Cluster, or the one to a single Redis.
 */
#ifndef OUTBOX_REDIS_CLUSTER_H
#define OUTBOX_REDIS_CLUSTER_H

#include "src/redis/redis_link.h"
#include "src/redis/redis_url.h"
#include "src/redis_cluster/slot_map.h"

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
extern RedisLink *redis_cluster_link_to(RedisCluster *cluster, const RedisNode *node);
extern void redis_cluster_limit(RedisCluster *cluster, int ms);
extern const RedisNode *redis_cluster_node_of(const RedisCluster *cluster, int slot);
extern bool redis_cluster_refresh(RedisCluster *cluster);
extern bool redis_cluster_refresh_elsewhere(RedisCluster *cluster);
extern bool redis_cluster_follow(RedisCluster *cluster, const RedisLink *link, const redisReply *reply);
extern redisReply *redis_cluster_call(RedisCluster *cluster, int argc, const char **argv);
extern void redis_cluster_tell(RedisCluster *cluster, const char *key, int argc, const char **argv);
extern redisReply *redis_cluster_call_master(RedisCluster *cluster, const char *key, int argc, const char **argv);
extern redisReply *redis_cluster_command(RedisCluster *cluster, const char *command, size_t size);
extern bool redis_cluster_roam(RedisCluster *cluster, const RedisNode *node);
extern void redis_cluster_stay(RedisCluster *cluster);
extern const SlotMap *redis_cluster_map(const RedisCluster *cluster);
extern void redis_cluster_fail_with_reply(RedisCluster *cluster, const redisReply *reply, const char *what);
extern void redis_cluster_fail(RedisCluster *cluster, const char *reason);

#endif							/* OUTBOX_REDIS_CLUSTER_H */
