/*
 * command.c
 *		The commands that the dispatcher sends to Redis, in the form of the protocol.
 *
 * Called by batch.c, which fills a page with messages, and by redis_session.c.
 * Commands are written into buffers that are reused: nothing is allocated per
 * message.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "bgworker/defer/destination.h"
#include "bgworker/publish/command.h"
#include "bgworker/publish/lease.h"
#include "bgworker/publish/release.lua.h"
#include "src/log/entry.h"
#include "src/redis/resp.h"
#include "src/settings.h"

/*
 * A command. The lease may be renewed while the commit of a page waits for the
 * standby, so commands without messages have a buffer of their own.
 */
typedef struct Command
{
	StringInfoData arguments;
	int			narguments;
} Command;

static Command page_command;
static Command short_command;
static Command *command = &short_command;	/* the one that was made last */
static StringInfoData header;

static void clear_command(Command *which);
static void begin_script(Command *which, const ScriptCall *call, const char *new_fence, const char *old_fence);
static void add_bytes(const char *bytes, size_t size, void *arg);
static void add_argument(const char *data, size_t size);
static void add_string(const char *string);
static void add_number(int64 number);

/* Prepares for use; called once, when the dispatcher starts. */
void
command_init(void)
{
	initStringInfo(&page_command.arguments);
	initStringInfo(&short_command.arguments);
	initStringInfo(&header);
}

/* Begins the run of the script for a page of messages, which are added next. */
void
command_begin_page(const ScriptCall *call, const char *new_fence, const char *old_fence)
{
	begin_script(&page_command, call, new_fence, old_fence);
}

/* Adds a message to the page. */
void
command_add_message(const Message *message)
{
	const Destination *destination = destination_find(message->dest);
	const text *stream = destination && destination->stream ? destination->stream : message->dest;

	add_number(message->id);
	entry_write_text(stream, add_bytes, NULL);
	add_number(destination && destination->maxlen >= 0 ? destination->maxlen : outbox_stream_maxlen);
	add_number(entry_count_fields(message));
	entry_write(message, add_bytes, NULL);
}

/* Returns the current size of the command of the page. */
size_t
command_page_bytes(void)
{
	return page_command.arguments.len;
}

/* Completes the page: command_send() sends it. */
void
command_end_page(void)
{
	command = &page_command;
}

/* Removes all messages from the page. */
void
command_clear_page(void)
{
	clear_command(&page_command);
}

/*
 * Makes a batch without messages: if the fence has not moved it gets a new
 * value, and the lease is renewed.
 */
void
command_make_empty(const ScriptCall *call, const char *new_fence, const char *fence)
{
	begin_script(&short_command, call, new_fence, fence);
}

/* Makes the command that releases the lease. */
void
command_make_release(const ScriptCall *call)
{
	clear_command(&short_command);
	add_string("EVAL");
	add_string(release_script);
	add_string("1");
	add_string(call->lease_key);
	add_string(lease_value());
}

/* Sends the command that was made last; from then on a reply to it is due. */
bool
command_send(RedisLink *link)
{
	resetStringInfo(&header);
	resp_put_array(&header, command->narguments);
	return redis_link_send(link, header.data, header.len) &&
		redis_link_send_buffer(link, &command->arguments);
}

/* Empties a command, and makes it the one that is being written. */
static void
clear_command(Command *which)
{
	command = which;
	redis_link_empty_buffer(&command->arguments);
	command->narguments = 0;
}

/* Begins a run of the script: all arguments but the messages (publish.lua). */
static void
begin_script(Command *which, const ScriptCall *call, const char *new_fence, const char *old_fence)
{
	clear_command(which);
	add_string("EVALSHA");
	add_string(call->sha);
	add_string("2");
	add_string(call->fence_key);
	add_string(call->lease_key);
	add_string(old_fence);
	add_string(new_fence);
	add_string(lease_value());
	add_number(LEASE_MS);
}

/* An EntrySink. */
static void
add_bytes(const char *bytes, size_t size, void *arg)
{
	add_argument(bytes, size);
}

/* Adds an argument of the command, which may be binary. */
static void
add_argument(const char *data, size_t size)
{
	resp_put(&command->arguments, data, size);
	command->narguments++;
}

/* The same for a C string. */
static void
add_string(const char *string)
{
	add_argument(string, strlen(string));
}

/* The same for a number, in decimal digits. */
static void
add_number(int64 number)
{
	resp_put_number(&command->arguments, number);
	command->narguments++;
}
