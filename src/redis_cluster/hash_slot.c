/*
 * hash_slot.c
 *		In which hash slot of a Redis Cluster a key is.
 *
 * Called by redis_cluster.c, redis_parts.c, lane.c and lanes.c.
 * A cluster keeps each key on the node that has its slot, and runs a script only
 * if all of its keys are in one. So a key of ours that is to be changed together
 * with a stream has the tag of the stream's slot in its name. Nothing here talks
 * to Redis; t/320 compares it with what Redis says.
 */
#include "postgres.h"

#include "src/crc16.h"
#include "src/redis_cluster/hash_slot.h"

static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";

static void find_tags(char tags[HASH_SLOTS][HASH_SLOT_TAG_BYTES]);
static bool next_tag(char *tag);

/*
 * Returns the slot of a key, which may have any bytes. If there is something
 * between its first "{" and the next "}", only that counts.
 */
int
hash_slot_of(const char *key, size_t size)
{
	const char *open = memchr(key, '{', size);
	const char *close = open ? memchr(open, '}', key + size - open) : NULL;

	if (close && close > open + 1)
		return crc16(open + 1, close - open - 1) % HASH_SLOTS;
	return crc16(key, size) % HASH_SLOTS;
}

/* Returns the shortest text of digits and letters that is in a slot, to be put between "{" and "}" in a key. */
const char *
hash_slot_tag(int slot)
{
	static char tags[HASH_SLOTS][HASH_SLOT_TAG_BYTES];

	if (tags[0][0] == '\0')
		find_tags(tags);
	return tags[slot];
}

/* Finds a tag for each slot, trying all texts in the order of their lengths. */
static void
find_tags(char tags[HASH_SLOTS][HASH_SLOT_TAG_BYTES])
{
	char		tag[HASH_SLOT_TAG_BYTES] = "0";
	int			left = HASH_SLOTS;

	do
	{
		char	   *found = tags[hash_slot_of(tag, strlen(tag))];

		if (found[0] != '\0')
			continue;
		memcpy(found, tag, HASH_SLOT_TAG_BYTES);
		left--;
	} while (left > 0 && next_tag(tag));
}

/* Changes a text into the next one, which may be longer. Returns false if it would be too long. */
static bool
next_tag(char *tag)
{
	int			length = strlen(tag);

	for (int i = length - 1; i >= 0; i--)
	{
		if (tag[i] != 'z')
		{
			tag[i] = strchr(digits, tag[i])[1];
			return true;
		}
		tag[i] = '0';
	}
	if (length + 1 == HASH_SLOT_TAG_BYTES)
		return false;
	tag[length] = '0';
	tag[length + 1] = '\0';
	return true;
}
