/*
 * redis_connect.h
 *		Connecting a link to the Redis that the settings name.
 */
#ifndef OUTBOX_REDIS_CONNECT_H
#define OUTBOX_REDIS_CONNECT_H

#include "src/redis_link.h"

extern bool redis_connect(RedisLink *link);

#endif							/* OUTBOX_REDIS_CONNECT_H */
