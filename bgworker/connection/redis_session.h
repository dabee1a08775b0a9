/*
 * redis_session.h
 *		The dispatcher's connection to Redis.
 */
#ifndef OUTBOX_REDIS_SESSION_H
#define OUTBOX_REDIS_SESSION_H

#include "bgworker/identity/instance.h"
#include "bgworker/window/position.h"
#include "src/redis/redis_link.h"

typedef enum Connection
{
	CONNECTION_FAILED,
	CONNECTION_HELD,			/* another server publishes */
	CONNECTION_OPEN
} Connection;

extern void redis_session_init(LinkAttend attend);
extern void redis_session_set_instance(Instance *instance);
extern Connection redis_session_open(Position *position);
extern void redis_session_release(void);
extern void redis_session_close(void);
extern bool redis_session_is_open(void);
extern bool redis_session_gave_up(void);
extern const char *redis_session_error(void);
extern const char *redis_session_blocked(int *lanes);
extern bool redis_session_try_blocked(int patience_ms, bool *freed);
extern void redis_session_attend(void);
extern int64 redis_session_round_trip(void);
extern TimestampTz redis_session_answered_at(void);

extern bool redis_session_settle_partitions(const Position *position);
extern bool redis_session_settle_mapping(const Position *position);
extern bool redis_session_awaits_answers(void);
extern bool redis_session_may_renew(void);
extern bool redis_session_renew(void);

#endif							/* OUTBOX_REDIS_SESSION_H */
