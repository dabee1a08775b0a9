/*
 * slot_map.c
 *		A program for t/321: the map of a cluster as the extension reads it.
 *
 * Reads a reply to CLUSTER SLOTS from stdin, in the form of the protocol; the
 * argument is the host that was asked. Writes a line for each range of slots.
 */
#include "postgres.h"

#include <stdio.h>

#include "src/redis_cluster/slot_map.h"

#undef printf					/* those of the server are in no library */
#undef strlcpy

static SlotMap map;

static void
print_range(int first, int behind)
{
	const RedisNode *node = map.node_of[first] == SLOT_UNSERVED ? NULL : &map.nodes[map.node_of[first]];

	printf("%d-%d ", first, behind - 1);
	if (node)
		printf("%s %d\n", node->host, node->port);
	else
		printf("unserved\n");
}

int
main(int argc, char **argv)
{
	redisReader *reader = redisReaderCreate();
	char		bytes[65536];
	size_t		n = fread(bytes, 1, sizeof(bytes), stdin);
	void	   *reply;
	int			first = 0;

	if (argc != 2 || redisReaderFeed(reader, bytes, n) != REDIS_OK ||
		redisReaderGetReply(reader, &reply) != REDIS_OK || reply == NULL)
		return 2;
	if (!slot_map_read(&map, reply, argv[1]))
	{
		puts("refused");
		return 0;
	}
	for (int slot = 1; slot <= HASH_SLOTS; slot++)
	{
		if (slot < HASH_SLOTS && map.node_of[slot] == map.node_of[first])
			continue;
		print_range(first, slot);
		first = slot;
	}
	return 0;
}
