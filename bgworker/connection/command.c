/*
 * command.c
 *		The commands that the dispatcher sends to Redis, in the form of the protocol.
 *
 * Called by batch.c, which fills commands with messages, and by fences.c and traffic.c.
 * Each is written into a buffer of its own that is used again: nothing is allocated
 * per message.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/connection/command.h"
#include "bgworker/identity/lease.h"
#include "src/compat.h"
#include "src/limits.h"
#include "src/redis/resp.h"
#include "src/redis/send_buffer.h"
#include "src/settings.h"

#define HEADER_BYTES	16		/* before the arguments, for their number */
#define KEPT_OF_MANY	(16 * 1024)
#define COUNT_DIGITS	5		/* of the number of messages in a group */

StaticAssertDecl(MAX_BATCH_SIZE < 100000, "a group must not have more messages than COUNT_DIGITS can say");

static StringInfoData names;	/* of a message */

static void begin_group(Command *command, const Message *message, const Route *route, int maxlen, EntryFormat format, bool is_alike);
static void end_group(Command *command);
static bool has_stream_of_group(const Group *group, const Message *message, const Route *route);
static bool is_like_group(const Group *group, const Message *message, int maxlen, EntryFormat format);
static void collect_names(const Message *message, EntryFormat format, StringInfo collected);
static void put_bytes(const char *bytes, size_t size, void *arg);
static void clear(Command *command);
static void begin_script(Command *command, const ScriptCall *call, const Lane *lane);
static void end_script(Command *command, const char *all_ids, const char *new_fence);
static void add_start(Command *command);
static void put_start(Command *command);
static void add_stream(const char *bytes, size_t size, void *arg);
static bool is_declared(const StringInfoData *streams, const char *bytes, size_t size);
static void add_bytes(const char *bytes, size_t size, void *arg);
static void add_argument(Command *command, const char *data, size_t size);
static void add_string(Command *command, const char *string);
static void add_number(Command *command, int64 number);

/* Makes an empty command, which is kept for good. */
Command *
command_create(void)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	Command    *command = palloc0(sizeof(Command));

	initStringInfo(&command->arguments);
	initStringInfo(&command->group.dest);
	initStringInfo(&command->group.names);
	initStringInfo(&command->ids);
	initStringInfo(&command->streams);
	if (names.data == NULL)
		initStringInfo(&names);
	MemoryContextSwitchTo(caller);
	return command;
}

/* Empties a command, and frees what it has of memory beyond what most of them need: there may be thousands. */
void
command_shrink(Command *command)
{
	send_buffer_shrink(&command->arguments, KEPT_OF_MANY);
}

/* Begins a run of the script for a lane; messages are added next. */
void
command_begin(Command *command, const ScriptCall *call, const Lane *lane)
{
	begin_script(command, call, lane);
	command->group.n = 0;
	resetStringInfo(&command->ids);
}

/* Begins another window: the messages that are added next are in this one. */
void
command_begin_window(Command *command, int64 number, const pg_uuid_t *uuid)
{
	char		text[UNIQUE_ID_BYTES];

	unique_id_write(uuid, text);
	appendStringInfo(&command->ids, "%lld/%s ", (long long) number, text);
}

/* Adds a message. */
void
command_add_message(Command *command, const Message *message, const Route *route)
{
	const Destination *destination = route->destination;
	int			maxlen = destination && destination->maxlen >= 0 ? destination->maxlen : outbox_stream_maxlen;
	EntryFormat format = destination ? destination->format : ENTRY_PLAIN;
	bool		is_alike = is_like_group(&command->group, message, maxlen, format);
	char		id[24];
	int			digits = pg_lltoa(message->id, id);

	if (!is_alike || !has_stream_of_group(&command->group, message, route))
		begin_group(command, message, route, maxlen, format, is_alike);
	entry_write(message, format, ENTRY_VALUES, add_bytes, command);
	command->group.n++;

	id[digits++] = ' ';
	appendBinaryStringInfo(&command->ids, id, digits);
}

/* Returns the current size of a command. */
size_t
command_bytes(const Command *command)
{
	return command->arguments.len;
}

/* Completes a command with messages, which brings the fence to a new value. */
void
command_end(Command *command, const char *new_fence)
{
	end_group(command);
	end_script(command, command->ids.data, new_fence);
}

/*
 * Makes a batch without messages: if the fence has not moved it gets a new
 * value, and the lease is renewed.
 */
void
command_make_empty(Command *command, const ScriptCall *call, const Lane *lane, const char *new_fence)
{
	begin_script(command, call, lane);
	end_script(command, "", new_fence);
}

/* Sends a command; from then on a reply to it is due. */
bool
command_send(Command *command, RedisLink *link)
{
	StringInfo	arguments = &command->arguments;
	char		header[HEADER_BYTES + 1];
	int			length = snprintf(header, sizeof(header), "*%d\r\n", command->narguments);

	arguments->cursor = HEADER_BYTES - length;
	memcpy(arguments->data + arguments->cursor, header, length);
	return redis_link_send_buffer(link, arguments);
}

/* Empties a command. */
static void
clear(Command *command)
{
	send_buffer_empty(&command->arguments);
	appendStringInfoSpaces(&command->arguments, HEADER_BYTES);
	command->narguments = 0;
}

/*
 * Begins a group with a message. `is_alike` tells that everything but its
 * stream is as in the group before.
 */
static void
begin_group(Command *command, const Message *message, const Route *route, int maxlen, EntryFormat format, bool is_alike)
{
	static const char no_count[COUNT_DIGITS] = {'0', '0', '0', '0', '0'};
	Group	   *group = &command->group;

	end_group(command);
	add_argument(command, no_count, COUNT_DIGITS);
	group->count_at = command->arguments.len - COUNT_DIGITS - strlen("\r\n");
	route_write_stream(route, message, add_stream, command);
	if (is_alike)
		add_number(command, 0);
	else
	{
		int			fields = entry_count_fields(message, format) / 2;

		add_number(command, fields);
		add_number(command, maxlen);
		collect_names(message, format, &group->names);
		appendBinaryStringInfo(&command->arguments, group->names.data, group->names.len);
		command->narguments += fields;
	}

	group->n = 0;
	resetStringInfo(&group->dest);
	appendBinaryStringInfo(&group->dest, VARDATA_ANY(message->dest), VARSIZE_ANY_EXHDR(message->dest));
	group->stream = route->stream;
	group->partition = route->partition;
	group->maxlen = maxlen;
	group->format = format;
	group->has_cause = message->cause != NULL;
	group->has_partition_key = message->partition_key != NULL;
	group->has_headers = message->headers != NULL;
}

/* Writes how many messages the group has, if there is one. */
static void
end_group(Command *command)
{
	char	   *count = command->arguments.data + command->group.count_at;

	for (int i = COUNT_DIGITS - 1, n = command->group.n; n > 0; i--, n /= 10)
		count[i] = '0' + n % 10;
}

/*
 * Check whether a message has the destination and the partition of a group, which must be
 * there. One that names its stream is alone: the name is gone with its row.
 */
static bool
has_stream_of_group(const Group *group, const Message *message, const Route *route)
{
	bool		names_stream = message->stream && message->stream == route->stream;

	return !names_stream && group->partition == route->partition && group->stream == route->stream && group->dest.len == VARSIZE_ANY_EXHDR(message->dest) &&
		memcmp(group->dest.data, VARDATA_ANY(message->dest), group->dest.len) == 0;
}

/* Check whether there is a group that differs from a message in its stream at most. */
static bool
is_like_group(const Group *group, const Message *message, int maxlen, EntryFormat format)
{
	if (group->n == 0 || maxlen != group->maxlen || format != group->format ||
		(message->cause != NULL) != group->has_cause || (message->partition_key != NULL) != group->has_partition_key ||
		(message->headers != NULL) != group->has_headers)
		return false;
	if (!group->has_headers)
		return true;
	collect_names(message, format, &names);
	return names.len == group->names.len && memcmp(names.data, group->names.data, names.len) == 0;
}

/* Writes the names of a message into a buffer. */
static void
collect_names(const Message *message, EntryFormat format, StringInfo collected)
{
	resetStringInfo(collected);
	entry_write(message, format, ENTRY_NAMES, put_bytes, collected);
}

/* An EntrySink. */
static void
put_bytes(const char *bytes, size_t size, void *arg)
{
	resp_put(arg, bytes, size);
}

/*
 * Begins a run of the script (publish.lua). In a cluster its keys are known only when
 * it has all messages.
 */
static void
begin_script(Command *command, const ScriptCall *call, const Lane *lane)
{
	clear(command);
	command->call = call;
	command->lane = lane;
	resetStringInfo(&command->streams);
	command->nstreams = 0;
	if (!call->clustered)
		add_start(command);
}

/* Ends it: the arguments behind the messages. */
static void
end_script(Command *command, const char *all_ids, const char *new_fence)
{
	add_string(command, all_ids);
	add_string(command, new_fence);
	if (command->call->clustered)
		put_start(command);
}

/* Adds the arguments before the messages. */
static void
add_start(Command *command)
{
	const ScriptCall *call = command->call;

	add_string(command, "EVALSHA");
	add_string(command, call->sha);
	add_number(command, call->clustered ? 1 + command->nstreams : 2);
	add_string(command, command->lane->key);
	if (call->clustered)
		appendBinaryStringInfo(&command->arguments, command->streams.data, command->streams.len);
	else
		add_string(command, call->lease_key);
	command->narguments += command->nstreams;
	add_string(command, command->lane->fence);
	add_string(command, call->clustered ? "" : lease_value());
	add_number(command, LEASE_MS);
}

/* Puts them in front of messages that are there. */
static void
put_start(Command *command)
{
	StringInfo	arguments = &command->arguments;
	int			behind = arguments->len;
	int			size;

	add_start(command);
	size = arguments->len - behind;
	enlargeStringInfo(arguments, size);
	memmove(arguments->data + HEADER_BYTES + size, arguments->data + HEADER_BYTES, arguments->len - HEADER_BYTES);
	memcpy(arguments->data + HEADER_BYTES, arguments->data + arguments->len, size);
}

/* An EntrySink, which adds the stream of a group, and declares it where that is needed. */
static void
add_stream(const char *bytes, size_t size, void *arg)
{
	Command    *command = arg;

	add_argument(command, bytes, size);
	if (!command->call->clustered || is_declared(&command->streams, bytes, size))
		return;
	resp_put(&command->streams, bytes, size);
	command->nstreams++;
}

/* Check whether a stream is among those that are declared. */
static bool
is_declared(const StringInfoData *streams, const char *bytes, size_t size)
{
	for (const char *at = streams->data; at < streams->data + streams->len;)
	{
		char	   *end;
		size_t		length = strtoul(at + strlen("$"), &end, 10);
		const char *stream = end + strlen("\r\n");

		if (length == size && memcmp(stream, bytes, size) == 0)
			return true;
		at = stream + length + strlen("\r\n");
	}
	return false;
}

/* An EntrySink, which adds an argument to a command. */
static void
add_bytes(const char *bytes, size_t size, void *arg)
{
	add_argument(arg, bytes, size);
}

/* Adds an argument, which may be binary. */
static void
add_argument(Command *command, const char *data, size_t size)
{
	resp_put(&command->arguments, data, size);
	command->narguments++;
}

/* The same for a C string. */
static void
add_string(Command *command, const char *string)
{
	add_argument(command, string, strlen(string));
}

/* The same for a number, in decimal digits. */
static void
add_number(Command *command, int64 number)
{
	resp_put_number(&command->arguments, number);
	command->narguments++;
}
