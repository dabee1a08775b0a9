/*
 * batch.h
 *		Messages that are sent together, in the form in which they are.
 */
#ifndef OUTBOX_BATCH_H
#define OUTBOX_BATCH_H

#include "bgworker/publish/command.h"
#include "bgworker/publish/fence.h"
#include "bgworker/publish/run.h"

typedef struct Batch
{
	size_t		bytes;			/* of the command */
	int64		next;			/* row of the run that follows it */
	int64		settled;		/* how many messages waited when the last
								 * window that ends in it had been looked at;
								 * -1 = none ends in it */
	int			n;				/* messages in it */
	int64	   *rows;			/* the rows of the run that these are */
	int			size;			/* how many it may have */
	int			reach;			/* how many rows may be looked at for them */
	char		builds_on[FENCE_BYTES]; /* value of the fence before the batch */
	char		fence[FENCE_BYTES]; /* and after it */
} Batch;

extern void batch_init(void);
extern bool batch_make(Batch *batch, const ScriptCall *call, const Lane *lane, Run *run,
					   int64 first, WindowPlace touched);
extern void batch_fence_after(const Batch *batch, const Lane *lane, Run *run, int n, char *fence);

extern bool batch_defer_rows(Run *run, const int64 *rows, int n, const char *error);

#endif							/* OUTBOX_BATCH_H */
