/*
 * batch.h
 *		The messages of a lane that are sent together.
 */
#ifndef OUTBOX_BATCH_H
#define OUTBOX_BATCH_H

#include "bgworker/connection/command.h"
#include "bgworker/lane/fence.h"
#include "bgworker/window/run.h"

typedef struct Batch
{
	Lane	   *lane;
	Command    *command;		/* until it is sent; then of another one */
	int			n;				/* messages in it */
	int64	   *rows;			/* the rows of the run that these are */
	int			room;			/* for so many */
	int64		window;			/* that the last one is in; 0 = it has none */
	WindowPlace from;			/* where the lane is before the batch, */
	WindowPlace to;				/* and after it */
	char		builds_on[FENCE_BYTES]; /* value of the fence before the batch */
	char		fence[FENCE_BYTES]; /* and after it */
} Batch;

extern void batch_begin(Batch *batch, const ScriptCall *call, Lane *lane, Command *command);
extern void batch_add(Batch *batch, int64 row, int64 window, const pg_uuid_t *uuid, const Message *message, const Route *route);
extern bool batch_is_full(const Batch *batch, int messages);
extern void batch_complete(Batch *batch, Run *run);
extern WindowPlace batch_fence_after(const Batch *batch, Run *run, int n, char *fence);

#endif							/* OUTBOX_BATCH_H */
