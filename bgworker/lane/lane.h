/*
 * lane.h
 *		Messages that share a fence, and how far they have got.
 */
#ifndef OUTBOX_LANE_H
#define OUTBOX_LANE_H

#include "datatype/timestamp.h"

#include "bgworker/lane/fence.h"
#include "bgworker/window/run.h"
#include "src/redis/redis_link.h"
#include "src/unique_id.h"

typedef struct Lane
{
	int			slot;			/* hash slot that the key is in, and in a
								 * cluster its streams */
	char		key[64];		/* of the fence in Redis */
	RedisLink  *link;			/* to the master that has the slot */
	char		connection[ERA_BYTES + RANDOM_NAME_BYTES];	/* part of every fence
															 * that is set */
	char		fence[FENCE_BYTES]; /* value in Redis when all batches under
									 * way are done */
	WindowPlace at;				/* the last message that Redis has then: it
								 * has, or has deferred, all up to this one;
								 * behind all if the lane is blocked */
	int			batch;			/* place among the batches of the page that is
								 * being made, if it has one */
	TimestampTz moved;			/* when it last named the newest published
								 * window, by clock_now(); 0 = not yet on this
								 * connection */
	bool		is_ours;		/* on this connection */
	const char *blocked;		/* why it cannot be written to for now; NULL =
								 * it can (lanes.c) */
	char		wanted[FENCE_BYTES];	/* value that is being set (fences.c);
										 * empty = none */
	WindowPlace wanted_at;
} Lane;

extern void lane_init(Lane *lane, const char *instance);
extern void lane_init_slot(Lane *lane, const char *instance, int slot);
extern void lane_note_read(Lane *lane, const char *fence);
extern void lane_claim(Lane *lane, char *claimed);
extern void lane_expect(Lane *lane, const char *fence, WindowPlace at);
extern void lane_write_fence(const Lane *lane, const Fence *value, char *fence);
extern void lane_want(Lane *lane, const char *fence, WindowPlace at);
extern void lane_want_end(Lane *lane, int64 number, const pg_uuid_t *uuid);
extern void lane_note_set(Lane *lane);
extern bool lane_is_at(const Lane *lane, int64 window);
extern bool lane_may_lag(const Lane *lane);
extern int64 lane_lag(void);
extern void lane_note_moved(Lane *lane);
extern bool lane_has_passed(const Lane *lane, int64 window, int64 first_window);

#endif							/* OUTBOX_LANE_H */
