/*
 * command.h
 *		The commands that the dispatcher sends to Redis.
 */
#ifndef OUTBOX_COMMAND_H
#define OUTBOX_COMMAND_H

#include "bgworker/publish/lane.h"
#include "bgworker/publish/redis_server.h"
#include "src/log/log.h"
#include "src/redis/redis_link.h"

/* What is the same in all runs of the script. */
typedef struct ScriptCall
{
	char		sha[SCRIPT_SHA_BYTES];
	char		instance[37];	/* its id, as text */
	char		lease_key[64];
} ScriptCall;

extern void command_init(void);
extern void command_begin_page(const ScriptCall *call, const Lane *lane);
extern void command_begin_window(int64 number, const pg_uuid_t *uuid);
extern void command_add_message(const Message *message);
extern size_t command_page_bytes(void);
extern void command_end_page(const char *new_fence);
extern void command_clear_page(void);
extern void command_make_empty(const ScriptCall *call, const Lane *lane, const char *new_fence);
extern void command_make_release(const ScriptCall *call);
extern bool command_send(RedisLink *link);

#endif							/* OUTBOX_COMMAND_H */
