/*
 * master_links.c
 *		The links to the masters of a Redis Cluster.
 *
 * Called by redis_cluster.c, which opens them. A link stays where it is until all are
 * freed. Nothing here talks to Redis.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "src/redis_cluster/master_links.h"

static void make_room(MasterLinks *links);

/*
 * Returns the entry of a master, which is made, with a closed link, if there is none. The
 * entry, but not the link, moves when another one is made.
 */
MasterLink *
master_links_find(MasterLinks *links, const RedisNode *node, LinkAttend attend)
{
	for (int i = 0; i < links->n; i++)
	{
		MasterLink *master = &links->list[i];

		if (redis_node_is(&master->node, node))
			return master;
	}
	if (links->n == links->room)
		make_room(links);
	links->list[links->n] = (MasterLink) {.node = *node, .link = redis_link_create(attend)};
	return &links->list[links->n++];
}

/* Closes and frees all links. */
void
master_links_free(MasterLinks *links)
{
	while (links->n > 0)
		redis_link_free(links->list[--links->n].link);
	if (links->list)
		pfree(links->list);
	*links = (MasterLinks) {0};
}

/* Makes room for more entries. */
static void
make_room(MasterLinks *links)
{
	int			room = Max(8, 2 * links->room);

	links->list = links->list ? repalloc(links->list, room * sizeof(MasterLink)) :
		MemoryContextAlloc(TopMemoryContext, room * sizeof(MasterLink));
	links->room = room;
}
