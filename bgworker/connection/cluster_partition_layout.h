/*
 * cluster_partition_layout.h
 *		Tells a Redis Cluster over how many streams a destination is spread.
 */
#ifndef OUTBOX_CLUSTER_PARTITION_LAYOUT_H
#define OUTBOX_CLUSTER_PARTITION_LAYOUT_H

#include "bgworker/connection/command.h"
#include "bgworker/identity/instance.h"
#include "src/redis_cluster/redis_cluster.h"

extern bool cluster_partition_layout_settle(RedisCluster *redis, const ScriptCall *call, Instance *instance);
extern bool cluster_partition_layout_compare(RedisCluster *redis, const ScriptCall *call);

#endif							/* OUTBOX_CLUSTER_PARTITION_LAYOUT_H */
