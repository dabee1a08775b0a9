/*
 * batch.h
 *		A batch of a window, in the form that it is sent in.
 */
#ifndef OUTBOX_BATCH_H
#define OUTBOX_BATCH_H

#include "bgworker/publish/position.h"
#include "src/log/log.h"
#include "src/redis/redis_link.h"

#define FENCE_BYTES		128

/* What is the same in all runs of the script. */
typedef struct ScriptCall
{
	char		sha[41];
	char		connection[9];	/* random, part of every fence that is set */
	char		fence_key[64];
	char		lease_key[64];
} ScriptCall;

typedef struct Batch
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
} Batch;

extern void batch_init(void);
extern bool batch_make(Batch *batch, const ScriptCall *call, WindowRows *window,
					   int64 first, int64 fresh, const char *fence);
extern void batch_make_empty(const ScriptCall *call, const char *new_fence, const char *fence);
extern void batch_make_release(const ScriptCall *call);
extern bool batch_send(RedisLink *link);
extern void batch_fence_of_empty_window(char *fence, const ScriptCall *call, int64 number, const pg_uuid_t *uuid);
extern void batch_fence_after(const Batch *batch, WindowRows *window, int n, char *fence);

extern bool batch_defer_rows(WindowRows *window, const int64 *rows, int n, const char *error);

#endif							/* OUTBOX_BATCH_H */
