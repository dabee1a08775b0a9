/*
 * lanes.c
 *		The lanes that messages are sent in.
 *
 * Called by fences.c, which claims them, and by page.c, which asks for the lane of a
 * message. All messages for a single Redis are one lane. In a Redis Cluster the
 * messages for the streams of a hash slot are one: a script reaches the keys of one
 * slot only, and slots move one by one. Which lanes are in use is on disk
 * (used_lanes.c); a message for another one must wait until that is.
 *
 * Our own lane is always in use. In a single Redis it is the only one. In a cluster no
 * message is in it: its fence tells whether this is the Redis that we were connected
 * to, and how far we got, as long as none was sent.
 *
 * Nothing here talks to Redis.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/publish/lanes.h"
#include "src/redis/hash_slot.h"
#include "src/unique_id.h"

static char id[UNIQUE_ID_BYTES];	/* of the instance, as text */
static bool is_clustered;
static Lane own;				/* of all messages in a single Redis */
static Lane *by_slot[HASH_SLOTS];	/* NULL = never asked for */
static Lane *lanes[HASH_SLOTS + 1]; /* in use, our own first, */
static int	nlanes;
static int	place[HASH_SLOTS];	/* of a slot's lane among these; 0 = it is not
								 * in use */
static int	wanted[HASH_SLOTS]; /* and slots that are asked for and are not */
static int	nwanted;
static bool is_wanted[HASH_SLOTS];

static int	slot_of(const Route *route, const Message *message);
static void note_slot(const char *bytes, size_t size, void *arg);

/* Sets the instance that the fences are of. */
void
lanes_init(const char *instance)
{
	strlcpy(id, instance, sizeof(id));
}

/* Begins a connection. In a cluster only our own lane is in use until others are entered. No fence is ours yet. */
void
lanes_begin(bool clustered)
{
	is_clustered = clustered;
	lane_init(&own, id);
	lanes[0] = &own;
	nlanes = 1;
	nwanted = 0;
	memset(is_wanted, 0, sizeof(is_wanted));
	memset(place, 0, sizeof(place));
}

/* Takes the lane of a hash slot into use. Its fence is not ours yet. */
void
lanes_enter(int slot)
{
	Lane	   *lane = by_slot[slot];

	if (lane == NULL)
		lane = by_slot[slot] = MemoryContextAlloc(TopMemoryContext, sizeof(Lane));
	lane_init_slot(lane, id, slot);
	place[slot] = nlanes;
	lanes[nlanes++] = lane;
}

/* Returns how many lanes are in use. */
int
lanes_count(void)
{
	return nlanes;
}

/* Returns one of the lanes that are in use. */
Lane *
lanes_get(int n)
{
	return lanes[n];
}

/* Returns the lane of a message; NULL if it is not in use, which it is wanted for from now on. */
Lane *
lanes_find(const Route *route, const Message *message)
{
	int			slot;

	if (!is_clustered)
		return lanes[0];
	slot = slot_of(route, message);
	if (place[slot] > 0)
		return lanes[place[slot]];
	if (!is_wanted[slot])
		wanted[nwanted++] = slot;
	is_wanted[slot] = true;
	return NULL;
}

/* Returns how many lanes are wanted. */
int
lanes_wanted(void)
{
	return nwanted;
}

/* Takes the lanes that are wanted into use. Returns which one of those in use is the first of them. */
int
lanes_enter_wanted(void)
{
	int			first = nlanes;

	for (int i = 0; i < nwanted; i++)
	{
		is_wanted[wanted[i]] = false;
		lanes_enter(wanted[i]);
	}
	nwanted = 0;
	return first;
}

/* Returns the hash slot of the stream of a message. */
static int
slot_of(const Route *route, const Message *message)
{
	int			slot;

	route_write_stream(route, message, note_slot, &slot);
	return slot;
}

/* An EntrySink: computes the slot of a key. */
static void
note_slot(const char *bytes, size_t size, void *arg)
{
	*(int *) arg = hash_slot_of(bytes, size);
}
