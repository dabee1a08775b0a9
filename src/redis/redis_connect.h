/*
 * redis_connect.h
 *		Connecting a link to a Redis, and logging in.
 */
#ifndef OUTBOX_REDIS_CONNECT_H
#define OUTBOX_REDIS_CONNECT_H

#include "src/redis/redis_link.h"
#include "src/redis/redis_url.h"

extern bool redis_connect_to(RedisLink *link, const char *text);
extern bool redis_connect_to_node(RedisLink *link, const char *text, uint64 hash, const RedisNode *node,
								  TimestampTz deadline);
extern uint64 redis_connect_hash(const char *text);

#endif							/* OUTBOX_REDIS_CONNECT_H */
