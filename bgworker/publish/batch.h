/*
 * batch.h
 *		A batch of a window, in the form in which it is sent.
 */
#ifndef OUTBOX_BATCH_H
#define OUTBOX_BATCH_H

#include "bgworker/publish/command.h"
#include "bgworker/publish/fence.h"
#include "bgworker/publish/window_rows.h"

typedef struct Batch
{
	size_t		bytes;			/* of the command */
	int64		next;			/* row of the window that follows it */
	int			n;				/* messages in it */
	int64	   *rows;			/* the rows of the window that these are */
	int			size;			/* how many it may have */
	int			reach;			/* how many rows may be looked at for them */
	char		builds_on[FENCE_BYTES]; /* value of the fence before the batch */
	char		fence[FENCE_BYTES]; /* and after it */
	int			prefix;			/* length of its part that does not depend on
								 * the last message */
} Batch;

extern void batch_init(void);
extern bool batch_make(Batch *batch, const ScriptCall *call, WindowRows *window,
					   int64 first, int64 fresh, const char *fence);
extern void batch_fence_after(const Batch *batch, WindowRows *window, int n, char *fence);

extern bool batch_defer_rows(WindowRows *window, const int64 *rows, int n, const char *error);

#endif							/* OUTBOX_BATCH_H */
