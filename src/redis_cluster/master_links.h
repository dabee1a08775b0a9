/*
 * master_links.h
 *		The links to the masters of a Redis Cluster.
 */
#ifndef OUTBOX_MASTER_LINKS_H
#define OUTBOX_MASTER_LINKS_H

#include "src/redis/redis_link.h"
#include "src/redis/redis_url.h"

typedef struct MasterLink
{
	RedisNode	node;
	RedisLink  *link;			/* may be closed */
} MasterLink;

typedef struct MasterLinks
{
	int			n;
	int			room;
	MasterLink *list;			/* in TopMemoryContext; NULL = none yet */
} MasterLinks;

extern MasterLink *master_links_find(MasterLinks *links, const RedisNode *node, LinkAttend attend);
extern void master_links_free(MasterLinks *links);

#endif							/* OUTBOX_MASTER_LINKS_H */
