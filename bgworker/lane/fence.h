/*
 * fence.h
 *		The value of the fence, the key in Redis that says how far the dispatcher got.
 */
#ifndef OUTBOX_FENCE_H
#define OUTBOX_FENCE_H

#include "src/unique_id.h"

#define FENCE_BYTES		128
#define ERA_BYTES		RANDOM_NAME_BYTES	/* of the name of an era */

/* In place of the last message: the window is finished. */
#define FENCE_AT_END	0

/* What the fence says: the window, and its last message that Redis has. */
typedef struct Fence
{
	int64		number;
	pg_uuid_t	uuid;
	int64		last_id;
	char		era[ERA_BYTES]; /* in which that was sent; empty = unknown */
} Fence;

extern void fence_write(char *fence, const Fence *value, const char *era, const char *connection);
extern void fence_claim(const char *fence, const char *connection, char *claimed, size_t size);
extern bool fence_parse(const char *text, Fence *fence);
extern void fence_read_claim(const char *text, char *era);

#endif							/* OUTBOX_FENCE_H */
