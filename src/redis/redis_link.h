/*
 * redis_link.h
 *		One interruptible, deadline-bound connection to Redis.
 */
#ifndef OUTBOX_REDIS_LINK_H
#define OUTBOX_REDIS_LINK_H

#include <hiredis.h>

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"

#include "src/redis/socket_wait.h"

typedef struct RedisLink RedisLink;

extern RedisLink *redis_link_create(LinkAttend attend);
extern void redis_link_free(RedisLink *link);
extern void redis_link_name(RedisLink *link, const char *format,...) pg_attribute_printf(2, 3);
extern void redis_link_limit(RedisLink *link, TimestampTz deadline);
extern bool redis_link_dial(RedisLink *link, const char *host, int port, bool tls, TimestampTz deadline);
extern bool redis_link_dial_path(RedisLink *link, const char *path, TimestampTz deadline);
extern const char *redis_link_host(const RedisLink *link);
extern bool redis_link_is_open(const RedisLink *link);
extern void redis_link_close(RedisLink *link);
extern const char *redis_link_error(const RedisLink *link);
extern void redis_link_fail(RedisLink *link, const char *format,...) pg_attribute_printf(2, 3);
extern void redis_link_fail_with_reply(RedisLink *link, const redisReply *reply, const char *what);

extern bool redis_link_send(RedisLink *link, const char *data, size_t size);
extern bool redis_link_send_buffer(RedisLink *link, StringInfo data);
extern bool redis_link_send_strings(RedisLink *link, int argc, const char **argv);
extern bool redis_link_await(RedisLink *link, TimestampTz until);
extern redisReply *redis_link_receive(RedisLink *link);
extern redisReply *redis_link_call(RedisLink *link, int argc, const char **argv);
extern void redis_link_wipe(RedisLink *link);

#endif							/* OUTBOX_REDIS_LINK_H */
