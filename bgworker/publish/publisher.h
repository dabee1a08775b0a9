/*
 * publisher.h
 *		Windows to batches, replies to verdicts.
 */
#ifndef OUTBOX_PUBLISHER_H
#define OUTBOX_PUBLISHER_H

#include "bgworker/instance.h"
#include "bgworker/publish/position.h"
#include "src/redis/redis_link.h"

typedef enum Connection
{
	CONNECTION_FAILED,
	CONNECTION_HELD,			/* another server publishes */
	CONNECTION_OPEN
} Connection;

typedef enum Progress
{
	PUBLISH_FAILED,				/* the link has, or the extension is being
								 * dropped: connect anew and go on */
	PUBLISHED_PART,				/* of a window: we are wanted elsewhere */
	PUBLISHED_WINDOW
} Progress;

extern void publisher_init(LinkAttend attend, bool (*is_wanted_elsewhere) (void));
extern void publisher_set_instance(Instance *instance);
extern Connection publisher_connect(Position *position);
extern void publisher_release(void);
extern bool publisher_is_connected(void);
extern bool publisher_makes_progress(void);
extern const char *publisher_error(void);
extern bool publisher_may_renew(void);
extern bool publisher_renew(void);
extern bool publisher_move_fence(int64 number, const pg_uuid_t *uuid);
extern Progress publisher_publish_next(Position *position);

#endif							/* OUTBOX_PUBLISHER_H */
