/*
 * redis_connect.h
 *		Connecting a link to a Redis, and logging in.
 */
#ifndef OUTBOX_REDIS_CONNECT_H
#define OUTBOX_REDIS_CONNECT_H

#include "src/redis/redis_credentials.h"

extern bool redis_connect_to(RedisLink *link, const RedisCredentials *credentials);
extern bool redis_connect_to_node(RedisLink *link, const RedisCredentials *credentials, const RedisNode *node,
								  TimestampTz deadline);
extern bool redis_connect_again(RedisLink *link, const char *text, uint64 hash, const RedisNode *node,
								TimestampTz deadline);

#endif							/* OUTBOX_REDIS_CONNECT_H */
