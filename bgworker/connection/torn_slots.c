/*
 * torn_slots.c
 *		Lanes that are torn apart between two nodes of a Redis Cluster.
 *
 * Called by fence_claims.c when it has read fences, and by delivery.c. A fence that is missing
 * because its slot is on its way to another node must not be taken for a loss. Nor must
 * a stream be written to that has gone there: where a node fails over while it gives a
 * slot away, Redis 7 forgets that it does, and the new master would begin a second copy.
 * Only the node that takes the slot over still tells. A node that knows that it gives a
 * slot away refuses by itself what it does not have any more (TRYAGAIN); it still has
 * the fence then, so that has to be remembered.
 *
 * redis-cli's repair of a slot whose move was forgotten first makes the other node its
 * owner, as if nothing were moving, and then brings the keys. So a slot that was torn a
 * moment ago is not whole yet: its fence would be taken for lost, or its stream begun
 * for a second time. A process that has just begun does not know that it was torn; so a
 * fence of a lane that is in use must be missing for as long, before it counts as lost.
 * What a new process cannot see is a slot whose fence was brought and whose stream was
 * not, in the moment of a repair by redis-cli that was not told of the move
 * (docs/operations.md).
 *
 * As long as a master does not answer, it may be the one that takes a slot over. A lane
 * may be written to all the same if its fence is there, its slot is where it was when
 * all masters had answered, and was not moving then: what has not changed its master
 * since has forgotten nothing. After a start nothing is known of that; then all lanes
 * wait until the cluster itself says that the node has failed (migrating_slots.c).
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "bgworker/connection/nodes_away.h"
#include "bgworker/connection/torn_slots.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/lane/used_lanes.h"
#include "src/clock.h"
#include "src/redis_cluster/migrating_slots.h"

/* How long a slot that was torn, or has lost its fence, must not move until it counts as whole. */
#define SETTLING_MS		3000

static bool has_refused[HASH_SLOTS];	/* TRYAGAIN, and it was moving since */
static uint64 whole_on[HASH_SLOTS]; /* hash of the node that had all of the
									 * slot; 0 = not known */
static TimestampTz settles_at[HASH_SLOTS];	/* 0 = was not torn, nor lost a
											 * fence; PG_INT64_MAX = was torn
											 * when we looked last */

static bool is_torn(const Lane *lane, uint8 moving, bool all_answered, char *why, size_t size);
static bool has_settled(int slot);
static uint64 hash_of_node(int slot);

/* Notes that a node has refused a batch because a part of what it needs has gone, or might have. */
void
torn_slots_note_refusal(int slot)
{
	has_refused[slot] = true;
}

/*
 * Blocks those of the lanes in use that are torn apart, from that one on; their fences
 * were read. Returns false if the links were closed, since no node tells.
 */
bool
torn_slots_block(int first)
{
	static uint8 moving[HASH_SLOTS];
	bool		all_answered;

	if (!traffic_is_clustered())
		return true;
	if (!migrating_slots_read(traffic_redis(), nodes_away_include, nodes_away_add, moving, &all_answered))
		return traffic_fail_as_cluster();
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);
		char		why[LINK_ERROR_BYTES + 128];

		if (lane->blocked)
			continue;
		if (is_torn(lane, moving[lane->slot], all_answered, why, sizeof(why)))
			lanes_block(lane, why);
		else
			has_refused[lane->slot] = false;
	}
	return true;
}

/* Check whether a lane is torn apart, or may be; *why says so. Remembers of the others what is known. */
static bool
is_torn(const Lane *lane, uint8 moving, bool all_answered, char *why, size_t size)
{
	bool		is_missing = lane->fence[0] == '\0';
	int			slot = lane->slot;

	if (is_missing && used_lanes_include(slot) && settles_at[slot] == 0)
		settles_at[slot] = PG_INT64_MAX;
	if (is_missing ? moving != 0 : moving == SLOT_COMES)
	{
		snprintf(why, size, "hash slot %d is torn between two nodes", slot);
		settles_at[slot] = PG_INT64_MAX;
	}
	else if (has_refused[slot] && (moving != 0 || !all_answered))
		snprintf(why, size, "the node answers TRYAGAIN for hash slot %d until its move is over", slot);
	else if (!all_answered && (is_missing || whole_on[slot] != hash_of_node(slot)))
		snprintf(why, size, "it is not known whether hash slot %d is torn between two nodes, because a master does not answer%s%s", slot,
				 nodes_away_any() ? ": " : "", nodes_away_any() ? nodes_away_any() : "");
	else if (!has_settled(slot))
		snprintf(why, size, is_missing ? "the fence of hash slot %d is missing, perhaps only for a moment" :
				 "hash slot %d was torn between two nodes a moment ago", slot);
	else
	{
		settles_at[slot] = 0;
		if (all_answered)
			whole_on[slot] = moving == 0 ? hash_of_node(slot) : 0;
		return false;
	}
	whole_on[slot] = 0;
	return true;
}

/* Check whether a slot that is not torn has been so for long enough. */
static bool
has_settled(int slot)
{
	TimestampTz now = clock_now();

	if (settles_at[slot] == PG_INT64_MAX)
		settles_at[slot] = TimestampTzPlusMilliseconds(now, SETTLING_MS);
	return now >= settles_at[slot];
}

/* Returns a hash of the address of the node that serves a slot; 0 if none does. */
static uint64
hash_of_node(int slot)
{
	const RedisNode *node = redis_cluster_node_of(traffic_redis(), slot);

	if (node == NULL)
		return 0;
	return hash_bytes_extended((const unsigned char *) node->host, strlen(node->host), node->port);
}
