/*
 * publisher.h
 *		Windows to batches, replies to verdicts.
 */
#ifndef OUTBOX_PUBLISHER_H
#define OUTBOX_PUBLISHER_H

#include "bgworker/publish/position.h"

typedef enum Progress
{
	PUBLISH_FAILED,				/* the link has, or the extension is being
								 * dropped: connect again and go on */
	PUBLISHED_PART,				/* of a window: we are wanted elsewhere */
	PUBLISHED_WINDOW
} Progress;

extern void publisher_init(bool (*is_wanted_elsewhere) (void));
extern bool publisher_makes_progress(void);
extern Progress publisher_publish_next(Position *position);

#endif							/* OUTBOX_PUBLISHER_H */
