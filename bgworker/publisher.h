/*
 * publisher.h
 *		Windows to chunks, replies to verdicts.
 */
#ifndef OUTBOX_PUBLISHER_H
#define OUTBOX_PUBLISHER_H

#include "bgworker/position.h"
#include "src/redis_link.h"

extern void publisher_init(LinkAttend attend);
extern void publisher_set_instance(const pg_uuid_t *instance);
extern bool publisher_connect(Position *position);
extern bool publisher_is_connected(void);
extern void publisher_disconnect(void);
extern const char *publisher_error(void);
extern const char *publisher_warning(void);
extern bool publisher_renew(void);
extern bool publisher_publish_next(Position *position);

#endif							/* OUTBOX_PUBLISHER_H */
