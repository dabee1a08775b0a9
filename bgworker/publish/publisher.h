/*
 * publisher.h
 *		Sends windows to Redis.
 */
#ifndef OUTBOX_PUBLISHER_H
#define OUTBOX_PUBLISHER_H

#include "bgworker/window/position.h"

typedef enum Progress
{
	PUBLISH_FAILED,				/* the link has failed, or the extension is
								 * being dropped: connect again */
	PUBLISHED_PART,				/* other work is due */
	PUBLISHED_ALL				/* windows that were at hand */
} Progress;

extern void publisher_init(bool (*is_due) (void), bool (*open_window) (void));
extern bool publisher_makes_progress(void);
extern Progress publisher_publish_next(Position *position);

#endif							/* OUTBOX_PUBLISHER_H */
