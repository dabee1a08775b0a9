/*
 * command.h
 *		The commands that the dispatcher sends to Redis.
 */
#ifndef OUTBOX_COMMAND_H
#define OUTBOX_COMMAND_H

#include "bgworker/connection/redis_server.h"
#include "bgworker/lane/lane.h"
#include "bgworker/lane/route.h"
#include "src/redis/redis_link.h"
#include "src/unique_id.h"

/* What is the same in all runs of the script. */
typedef struct ScriptCall
{
	bool		clustered;		/* the keys are the fence and the streams, not
								 * the lease */
	char		sha[SCRIPT_SHA_BYTES];
	char		instance[UNIQUE_ID_BYTES];	/* its id, as text */
	char		lease_key[64];
} ScriptCall;

/*
 * The messages at the end of a command that have the same stream and the same
 * names. These are written once, before the values of all of them.
 */
typedef struct Group
{
	int			n;				/* messages; 0 = there is no group yet */
	int			count_at;		/* where in the arguments their number is */
	StringInfoData dest;
	const text *stream;			/* NULL = the name of the destination */
	int			partition;		/* of its streams; -1 = it has one */
	int			maxlen;
	EntryFormat format;
	bool		has_cause;
	bool		has_partition_key;
	bool		has_headers;
	StringInfoData names;		/* as they are sent */
} Group;

typedef struct Command
{
	StringInfoData arguments;	/* behind room for the header */
	int			narguments;
	StringInfoData ids;			/* of its windows and messages */
	const ScriptCall *call;
	const Lane *lane;
	StringInfoData streams;		/* its keys, where they are declared, */
	int			nstreams;		/* as they are sent */
	Group		group;
} Command;

extern Command *command_create(void);
extern void command_shrink(Command *command);
extern void command_begin(Command *command, const ScriptCall *call, const Lane *lane);
extern void command_begin_window(Command *command, int64 number, const pg_uuid_t *uuid);
extern void command_add_message(Command *command, const Message *message, const Route *route);
extern size_t command_bytes(const Command *command);
extern void command_end(Command *command, const char *new_fence);
extern void command_make_empty(Command *command, const ScriptCall *call, const Lane *lane, const char *new_fence);
extern bool command_send(Command *command, RedisLink *link);

#endif							/* OUTBOX_COMMAND_H */
