/*
 * redis_server.h
 *		Checks the Redis that we are connected to, and loads the script into it.
 */
#ifndef OUTBOX_REDIS_SERVER_H
#define OUTBOX_REDIS_SERVER_H

#include "src/redis/redis_link.h"

#define SCRIPT_SHA_BYTES	41	/* 40 hexadecimal digits */

extern bool redis_server_check(RedisLink *link, bool clustered);
extern bool redis_server_may_add(RedisLink *link, const char *key);
extern bool redis_server_load_script(RedisLink *link, char *sha);

#endif							/* OUTBOX_REDIS_SERVER_H */
