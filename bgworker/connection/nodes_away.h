/*
 * nodes_away.h
 *		Masters of a Redis Cluster that could not be reached.
 */
#ifndef OUTBOX_NODES_AWAY_H
#define OUTBOX_NODES_AWAY_H

#include "src/redis/redis_url.h"

extern void nodes_away_add(const RedisNode *node, const char *why);
extern void nodes_away_add_refusing(const RedisNode *node, const char *why);
extern const char *nodes_away_why(const RedisNode *node);
extern const char *nodes_away_any(void);
extern bool nodes_away_include(const RedisNode *node);
extern void nodes_away_forget(void);

#endif							/* OUTBOX_NODES_AWAY_H */
