/*
 * redis_parts.h
 *		The parts of a deduplication store in Redis, each of which is in one place.
 */
#ifndef OUTBOX_REDIS_PARTS_H
#define OUTBOX_REDIS_PARTS_H

#include "src/redis_cluster/redis_cluster.h"
#include "src/store/store.h"

typedef struct RedisParts
{
	RedisCluster *redis;
	int			n;				/* STORE_PARTS in a cluster, else 1 */
} RedisParts;

/*
 * Takes the n-th reply of a part. Returns false if it is not what was expected. Must
 * not raise an error.
 */
typedef bool (*PartVisit) (int part, int n, const redisReply *reply, void *arg);

/* What is sent to parts. */
typedef struct PartCommands
{
	StringInfo	commands[STORE_PARTS];	/* NULL = nothing */
	int			replies;		/* so many commands to each */
	bool		has_one_key;	/* the first command has one key and is no
								 * script, the others have none */
	PartVisit	visit;
	void	   *arg;
} PartCommands;

extern RedisParts *redis_parts_open(const char *url, LinkAttend attend, StoreFailure *failure);
extern void redis_parts_close(RedisParts *parts);
extern int	redis_parts_of(const RedisParts *parts, const pg_uuid_t *key);
extern int	redis_parts_name(const RedisParts *parts, int part, const char *prefix, char *name, size_t size);
extern bool redis_parts_run(RedisParts *parts, PartCommands *commands, StoreFailure *failure);

#endif							/* OUTBOX_REDIS_PARTS_H */
