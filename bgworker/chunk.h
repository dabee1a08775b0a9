/*
 * chunk.h
 *		A chunk of a window, in the form that it is sent in.
 */
#ifndef OUTBOX_CHUNK_H
#define OUTBOX_CHUNK_H

#include "bgworker/position.h"
#include "src/log.h"
#include "src/redis_link.h"

#define FENCE_BYTES		128

/* What is the same in all runs of the script. */
typedef struct ScriptCall
{
	char		sha[41];
	char		connection[9];	/* random, part of every fence that is set */
	char		fence_key[64];
	char		lease_key[64];
} ScriptCall;

typedef struct Chunk
{
	size_t		bytes;			/* of the command */
	int64		next;			/* row of the window that follows it */
	int			n;				/* messages in it */
	int64	   *rows;			/* which rows of the window these are */
	int			size;			/* as many it may have */
	int			reach;			/* as many rows it may look at for them */
	char		builds_on[FENCE_BYTES]; /* value of the fence before it */
	char		fence[FENCE_BYTES]; /* and after it */
	int			prefix;			/* how much of that does not depend on the
								 * last message */
} Chunk;

extern void chunk_init(void);
extern bool chunk_make(Chunk *chunk, const ScriptCall *call, WindowRows *window,
					   int64 first, int64 fresh, const char *fence);
extern void chunk_make_empty(const ScriptCall *call, const char *new_fence, const char *fence);
extern void chunk_make_release(const ScriptCall *call);
extern bool chunk_send(RedisLink *link);
extern void chunk_fence_of_empty_window(char *fence, const ScriptCall *call, int64 number, const pg_uuid_t *uuid);
extern void chunk_fence_after(const Chunk *chunk, WindowRows *window, int n, char *fence);

extern bool chunk_defer_rows(WindowRows *window, const int64 *rows, int n, const char *error);

#endif							/* OUTBOX_CHUNK_H */
