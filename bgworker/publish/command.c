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
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/publish/command.h"
#include "bgworker/publish/lease.h"
#include "bgworker/publish/release.lua.h"
#include "src/compat.h"
#include "src/limits.h"
#include "src/log/entry.h"
#include "src/log/partition.h"
#include "src/redis/resp.h"
#include "src/redis/send_buffer.h"
#include "src/settings.h"

#define HEADER_BYTES	16		/* before the arguments, for their number */
#define COUNT_DIGITS	5		/* of the number of messages in a group */

StaticAssertDecl(MAX_BATCH_SIZE < 100000, "a group must not have more messages than COUNT_DIGITS can say");

/*
 * A command. The lease may be renewed while the commit of a page waits for the
 * standby, so commands without messages have a buffer of their own.
 */
typedef struct Command
{
	StringInfoData arguments;	/* behind room for the header */
	int			narguments;
} Command;

/*
 * The messages at the end of the page that have the same stream and the same
 * names. These are written once, before the values of all of them.
 */
typedef struct Group
{
	int			n;				/* messages; 0 = there is no group yet */
	int			count_at;		/* where in the arguments their number is */
	StringInfoData dest;
	int			partition;		/* of its streams; -1 = it has one */
	int			maxlen;
	EntryFormat format;
	bool		has_cause;
	bool		has_partition_key;
	bool		has_headers;
	StringInfoData names;		/* as they are sent */
} Group;

static Command page_command;
static Command short_command;
static Command *command = &short_command;	/* the one that was made last */
static Group group;
static StringInfoData ids;		/* of the windows and messages of the page */
static StringInfoData names;	/* of a message */
static StringInfoData stream;	/* with the number of a partition */

static void begin_group(const Message *message, const Destination *destination, int partition,
						int maxlen, EntryFormat format, bool is_alike);
static void add_stream(const text *name, int partition);
static void end_group(void);
static bool has_stream_of_group(const Message *message, int partition);
static bool is_like_group(const Message *message, int maxlen, EntryFormat format);
static void collect_names(const Message *message, EntryFormat format, StringInfo collected);
static void put_bytes(const char *bytes, size_t size, void *arg);
static void clear_command(Command *which);
static void begin_script(Command *which, const ScriptCall *call, const Lane *lane);
static void end_script(const char *all_ids, const char *new_fence);
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
	initStringInfo(&group.dest);
	initStringInfo(&group.names);
	initStringInfo(&ids);
	initStringInfo(&names);
	initStringInfo(&stream);
}

/* Begins the run of the script for a page of messages, which are added next. */
void
command_begin_page(const ScriptCall *call, const Lane *lane)
{
	begin_script(&page_command, call, lane);
	group.n = 0;
	resetStringInfo(&ids);
}

/* Begins another window: the messages that are added next are in this one. */
void
command_begin_window(int64 number, const pg_uuid_t *uuid)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(uuid)));

	appendStringInfo(&ids, "%lld/%s ", (long long) number, text);
	pfree(text);
}

/* Adds a message to the page. */
void
command_add_message(const Message *message)
{
	const Destination *destination = destination_find(message->dest);
	int			maxlen = destination && destination->maxlen >= 0 ? destination->maxlen : outbox_stream_maxlen;
	EntryFormat format = destination ? destination->format : ENTRY_PLAIN;
	int			partition = destination && destination->partitions > 0 ? partition_of(message, destination->partitions) : -1;
	bool		is_alike = is_like_group(message, maxlen, format);
	char		id[24];
	int			digits = pg_lltoa(message->id, id);

	if (!is_alike || !has_stream_of_group(message, partition))
		begin_group(message, destination, partition, maxlen, format, is_alike);
	entry_write(message, format, ENTRY_VALUES, add_bytes, NULL);
	group.n++;

	id[digits++] = ' ';
	appendBinaryStringInfo(&ids, id, digits);
}

/* Returns the current size of the command of the page. */
size_t
command_page_bytes(void)
{
	return page_command.arguments.len;
}

/* Completes the page, which brings the fence to a new value: command_send() sends it. */
void
command_end_page(const char *new_fence)
{
	command = &page_command;
	end_group();
	end_script(ids.data, new_fence);
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
command_make_empty(const ScriptCall *call, const Lane *lane, const char *new_fence)
{
	begin_script(&short_command, call, lane);
	end_script("", new_fence);
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
	StringInfo	arguments = &command->arguments;
	char		header[HEADER_BYTES + 1];
	int			length = snprintf(header, sizeof(header), "*%d\r\n", command->narguments);

	arguments->cursor = HEADER_BYTES - length;
	memcpy(arguments->data + arguments->cursor, header, length);
	return redis_link_send_buffer(link, arguments);
}

/*
 * Begins a group with a message. `is_alike` tells that everything but its
 * stream is as in the group before.
 */
static void
begin_group(const Message *message, const Destination *destination, int partition,
			int maxlen, EntryFormat format, bool is_alike)
{
	static const char no_count[COUNT_DIGITS] = {'0', '0', '0', '0', '0'};

	end_group();
	add_argument(no_count, COUNT_DIGITS);
	group.count_at = command->arguments.len - COUNT_DIGITS - strlen("\r\n");
	add_stream(destination && destination->stream ? destination->stream : message->dest, partition);
	if (is_alike)
		add_number(0);
	else
	{
		int			fields = entry_count_fields(message, format) / 2;

		add_number(fields);
		add_number(maxlen);
		collect_names(message, format, &group.names);
		appendBinaryStringInfo(&command->arguments, group.names.data, group.names.len);
		command->narguments += fields;
	}

	group.n = 0;
	resetStringInfo(&group.dest);
	appendBinaryStringInfo(&group.dest, VARDATA_ANY(message->dest), VARSIZE_ANY_EXHDR(message->dest));
	group.partition = partition;
	group.maxlen = maxlen;
	group.format = format;
	group.has_cause = message->cause != NULL;
	group.has_partition_key = message->partition_key != NULL;
	group.has_headers = message->headers != NULL;
}

/* Writes the key of a stream, or of a partition of it. */
static void
add_stream(const text *name, int partition)
{
	if (partition < 0)
		field_write_text(name, add_bytes, NULL);
	else
	{
		partition_write_stream(name, partition, &stream);
		field_write_utf8(stream.data, stream.len, add_bytes, NULL);
	}
}

/* Writes how many messages the group has, if there is one. */
static void
end_group(void)
{
	char	   *count = command->arguments.data + group.count_at;

	for (int i = COUNT_DIGITS - 1, n = group.n; n > 0; i--, n /= 10)
		count[i] = '0' + n % 10;
}

/* Check whether a message has the destination and the partition of the group, which must be there. */
static bool
has_stream_of_group(const Message *message, int partition)
{
	return group.partition == partition && group.dest.len == VARSIZE_ANY_EXHDR(message->dest) &&
		memcmp(group.dest.data, VARDATA_ANY(message->dest), group.dest.len) == 0;
}

/* Check whether there is a group that differs from a message in its stream at most. */
static bool
is_like_group(const Message *message, int maxlen, EntryFormat format)
{
	if (group.n == 0 || maxlen != group.maxlen || format != group.format ||
		(message->cause != NULL) != group.has_cause || (message->partition_key != NULL) != group.has_partition_key ||
		(message->headers != NULL) != group.has_headers)
		return false;
	if (!group.has_headers)
		return true;
	collect_names(message, format, &names);
	return names.len == group.names.len && memcmp(names.data, group.names.data, names.len) == 0;
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

/* Empties a command, and makes it the one that is being written. */
static void
clear_command(Command *which)
{
	command = which;
	send_buffer_empty(&command->arguments);
	appendStringInfoSpaces(&command->arguments, HEADER_BYTES);
	command->narguments = 0;
}

/* Begins a run of the script: the arguments before the messages (publish.lua). */
static void
begin_script(Command *which, const ScriptCall *call, const Lane *lane)
{
	clear_command(which);
	add_string("EVALSHA");
	add_string(call->sha);
	add_string("2");
	add_string(lane->key);
	add_string(call->lease_key);
	add_string(lane->fence);
	add_string(lease_value());
	add_number(LEASE_MS);
}

/* Ends it: the arguments behind the messages. */
static void
end_script(const char *all_ids, const char *new_fence)
{
	add_string(all_ids);
	add_string(new_fence);
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
