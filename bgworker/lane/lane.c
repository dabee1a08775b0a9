/*
 * lane.c
 *		Messages that share a fence, and how far they have got.
 *
 * Called by lanes.c, fence_claims.c, fences.c, batch.c, publisher.c and refusals.c. All
 * messages for one Redis are one lane (lanes.c). A lane is read and claimed when a
 * connection is opened; each batch then builds on the value that the one before it brings
 * the fence to. Nothing here talks to Redis.
 */
#include "postgres.h"

#include "bgworker/lane/era.h"
#include "bgworker/lane/lane.h"
#include "src/clock.h"
#include "src/redis_cluster/hash_slot.h"
#include "src/settings.h"

#define LAG_MS		1000		/* how far the fence may lag behind */

/* Names the fence of an instance, which has no hash slot to be in. */
void
lane_init(Lane *lane, const char *instance)
{
	memset(lane, 0, sizeof(Lane));
	snprintf(lane->key, sizeof(lane->key), "outbox:fence:%s", instance);
	lane->slot = hash_slot_of(lane->key, strlen(lane->key));
}

/* Names its fence for the streams in a hash slot. */
void
lane_init_slot(Lane *lane, const char *instance, int slot)
{
	memset(lane, 0, sizeof(Lane));
	lane->slot = slot;
	snprintf(lane->key, sizeof(lane->key), "outbox:fence:%s:{%s}", instance, hash_slot_tag(slot));
}

/* Notes the fence that was read; empty if there is none. It must fit. */
void
lane_note_read(Lane *lane, const char *fence)
{
	strlcpy(lane->fence, fence, sizeof(lane->fence));
	lane->moved = 0;
}

/*
 * Gives the connection a name, which begins with that of the current era, and writes the
 * fence with that name to `claimed`.
 * When Redis has this value, no batch of an earlier connection that is still on its
 * way can pass the comparison, not even if the position has not changed because a
 * message was deferred.
 */
void
lane_claim(Lane *lane, char *claimed)
{
	char		name[RANDOM_NAME_BYTES];

	unique_id_name(name);
	snprintf(lane->connection, sizeof(lane->connection), "%s.%s", era_name(), name);
	fence_claim(lane->fence, lane->connection, claimed, FENCE_BYTES);
}

/* Notes the value that the batches under way will bring the fence to, and which message that is. */
void
lane_expect(Lane *lane, const char *fence, WindowPlace at)
{
	strlcpy(lane->fence, fence, sizeof(lane->fence));
	lane->at = at;
}

/* Notes a value that the fence is to have, when it is set next. */
void
lane_want(Lane *lane, const char *fence, WindowPlace at)
{
	memmove(lane->wanted, fence, strlen(fence) + 1);
	lane->wanted_at = at;
}

/* Has the fence moved to the end of a window, unless it is beyond. */
void
lane_want_end(Lane *lane, int64 number, const pg_uuid_t *uuid)
{
	char		moved[FENCE_BYTES];

	if (lane->at.window > number)
		return;
	lane_write_fence(lane, &(Fence) {.number = number, .uuid = *uuid, .last_id = FENCE_AT_END}, moved);
	lane_want(lane, moved, place_at_end(number));
}

/* Notes that the fence has the value that was wanted. */
void
lane_note_set(Lane *lane)
{
	lane_expect(lane, lane->wanted, lane->wanted_at);
	lane->wanted[0] = '\0';
}

/* Writes a value of the fence that is set by this connection, in the current era. */
void
lane_write_fence(const Lane *lane, const Fence *value, char *fence)
{
	fence_write(fence, value, era_name(), lane->connection);
}

/* Check whether the fence names that window. */
bool
lane_is_at(const Lane *lane, int64 window)
{
	return strtoll(lane->fence, NULL, 10) == window;
}

/* Check whether the fence may still lag behind the newest published window. */
bool
lane_may_lag(const Lane *lane)
{
	return clock_now() - lane->moved < lane_lag();
}

/* Returns how far a fence may lag behind, in microseconds. */
int64
lane_lag(void)
{
	return Min(LAG_MS * INT64CONST(1000), outbox_replay_window * USECS_PER_SEC / 4);
}

/* Notes that the fence names the newest published window. */
void
lane_note_moved(Lane *lane)
{
	lane->moved = clock_now();
}

/*
 * Check whether the fence is at the end of a window, or beyond. A fence that was
 * never moved is at the end of the first one.
 */
bool
lane_has_passed(const Lane *lane, int64 window, int64 first_window)
{
	Fence		at;

	if (!fence_parse(lane->fence, &at))
		at = (Fence) {.number = first_window, .last_id = FENCE_AT_END};
	return at.number > window || (at.number == window && at.last_id == FENCE_AT_END);
}
