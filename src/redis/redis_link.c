/*
 * redis_link.c
 *		One interruptible, deadline-bound connection to Redis.
 *
 * Called by all that talk to Redis: the dispatcher, outbox_send() and the stores. It knows
 * sockets and replies, but neither logins nor messages. hiredis parses what channel.c
 * reads; channel_dial.c waits until it is connected, and the waiting after that is done
 * here, by socket_wait.c. Failure is a result here, never an error: the text is in
 * redis_link_error(), and says which server it is about. A link that failed is closed and
 * must be opened again; it is not known then what Redis has done with what was sent.
 *
 * The other side is not trusted. So no reply takes more time than
 * outbox.command_timeout, even if it comes byte by byte, nor more memory than
 * the largest reply that we expect.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/redis/channel.h"
#include "src/redis/channel_dial.h"
#include "src/redis/redis_link.h"
#include "src/redis/resolver.h"
#include "src/redis/resp.h"
#include "src/redis/send_buffer.h"
#include "src/redis/socket_wait.h"
#include "src/settings.h"

#define READ_BYTES		(16 * 1024) /* at a time; TLS has no larger records */
#define TLS_ALERT		0x15	/* the first byte of one */
#define SENT_BYTES		(16 * 1024) /* the time limit restarts when this many
									 * were sent */

#define MAX_REPLY_BYTES	(16 * 1024 * 1024)	/* those that we expect have some
											 * kilobytes; what a node of a
											 * cluster says of slots that lie
											 * scattered, up to 500 for each */

#define NAME_BYTES		(LINK_ERROR_BYTES - FOREIGN_TEXT_BYTES - 3)

struct RedisLink
{
	LinkAttend	attend;
	redisReader *reader;		/* NULL = closed */
	Channel		channel;		/* open if there is a reader */
	bool		has_answered;	/* something was received */
	StringInfoData out;			/* to be sent, from out.cursor on */
	size_t		received;		/* bytes since the last reply was complete */
	int64		elements;		/* in arrays of the reply that is being read */
	TimestampTz limit;			/* deadline for all replies of this
								 * connection; 0 = none */
	char		host[256];		/* it was connected to last; empty = to a path */
	char		name[NAME_BYTES];	/* of the server, for errors */
	char		error[LINK_ERROR_BYTES];
};

static redisReply *take_reply(RedisLink *link);
static bool open_reader(RedisLink *link);
static bool note_dialed(RedisLink *link, bool connected);
static bool write_some(RedisLink *link);
static bool read_some(RedisLink *link);
static redisReply *fail_to_answer(RedisLink *link, TimestampTz begun, TimestampTz deadline);
static void fail_to_read(RedisLink *link);
static void take_bytes(RedisLink *link, const char *bytes, int n);
static int	wait_for_socket(RedisLink *link, int events, TimestampTz deadline);

/* Makes a closed link, which lives until redis_link_free(). */
RedisLink *
redis_link_create(LinkAttend attend)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	RedisLink  *link = palloc0(sizeof(RedisLink));

	link->attend = attend;
	channel_init(&link->channel);
	initStringInfo(&link->out);
	MemoryContextSwitchTo(caller);
	return link;
}

/* Closes and frees a link. */
void
redis_link_free(RedisLink *link)
{
	redis_link_close(link);
	pfree(link->out.data);
	pfree(link);
}

/* Sets how errors name the server from now on. Must not include a password. */
void
redis_link_name(RedisLink *link, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	foreign_text_format(link->name, sizeof(link->name), format, args);
	va_end(args);
}

/* Sets a deadline for all replies of this connection, in addition to outbox.command_timeout. */
void
redis_link_limit(RedisLink *link, TimestampTz deadline)
{
	link->limit = deadline;
}

/*
 * Connects to a host, with TLS or in clear, trying all its addresses, each of which
 * gets its share of the time. Closes an open connection first.
 */
bool
redis_link_dial(RedisLink *link, const char *host, int port, bool tls, TimestampTz deadline)
{
	Addresses	addresses;
	const char *failure;

	redis_link_close(link);
	strlcpy(link->host, host, sizeof(link->host));
	failure = resolver_find(host, deadline, link->attend, &addresses);
	if (failure)
	{
		redis_link_fail(link, "could not look up the host: %s", failure);
		return false;
	}
	return open_reader(link) &&
		note_dialed(link, channel_dial(&link->channel, &addresses, port, tls ? host : NULL, deadline, link->attend));
}

/* Connects to a Unix-domain socket. Closes an open connection first. */
bool
redis_link_dial_path(RedisLink *link, const char *path, TimestampTz deadline)
{
	redis_link_close(link);
	link->host[0] = '\0';
	return open_reader(link) && note_dialed(link, channel_dial_path(&link->channel, path, deadline, link->attend));
}

/* Returns the host that the link was connected to last, empty if by a path. */
const char *
redis_link_host(const RedisLink *link)
{
	return link->host;
}

/* Check whether there is a connection, as far as is known. */
bool
redis_link_is_open(const RedisLink *link)
{
	return link->reader != NULL;
}

/* Closes the connection, if there is one, and drops what was not yet sent. */
void
redis_link_close(RedisLink *link)
{
	channel_close(&link->channel);
	if (link->reader)
		redisReaderFree(link->reader);
	link->reader = NULL;
	link->has_answered = false;
	link->received = 0;
	link->limit = 0;
	send_buffer_empty(&link->out);
}

/* Returns why the link failed last. Contains no password. */
const char *
redis_link_error(const RedisLink *link)
{
	return link->error;
}

/* Notes why the link cannot be used, with the name of the server, and closes it. */
void
redis_link_fail(RedisLink *link, const char *format,...)
{
	va_list		args;
	size_t		length;

	va_start(args, format);
	foreign_text_format(link->error, FOREIGN_TEXT_BYTES, format, args);
	va_end(args);
	length = strlen(link->error);
	if (link->name[0] != '\0')
		snprintf(link->error + length, sizeof(link->error) - length, " (%s)", link->name);
	redis_link_close(link);
}

/* The same for a reply that was not expected. */
void
redis_link_fail_with_reply(RedisLink *link, const redisReply *reply, const char *what)
{
	char		error[FOREIGN_TEXT_BYTES];

	resp_error(reply, error, sizeof(error));
	redis_link_fail(link, "%s: %s", what, error);
}

/*
 * Queues commands in the form of the protocol and sends what the socket takes
 * without waiting. redis_link_receive() must be called once for each command.
 */
bool
redis_link_send(RedisLink *link, const char *data, size_t size)
{
	appendBinaryStringInfo(&link->out, data, size);
	return write_some(link);
}

/*
 * The same for a buffer in TopMemoryContext, from its cursor on. It is empty when
 * this returns, and is copied only if something else is still to be sent first.
 */
bool
redis_link_send_buffer(RedisLink *link, StringInfo data)
{
	send_buffer_move(&link->out, data);
	return write_some(link);
}

/* The same for one command that is given as strings. */
bool
redis_link_send_strings(RedisLink *link, int argc, const char **argv)
{
	resp_put_command(&link->out, argc, argv);
	return write_some(link);
}

/*
 * Waits for the next reply, sending meanwhile. Returns NULL if the link failed:
 * the other side closed it, or the reply was not there within
 * outbox.command_timeout. Sending may take longer, as long as it makes progress
 * within that time. The caller must free the reply before it does anything that
 * can raise an error.
 */
redisReply *
redis_link_receive(RedisLink *link)
{
	TimestampTz begun = clock_now();
	TimestampTz deadline = TimestampTzPlusMilliseconds(begun, outbox_command_timeout);
	size_t		to_send = send_buffer_unsent(&link->out);
	bool		is_late = false;

	while (link->reader)
	{
		redisReply *reply = take_reply(link);
		int			events;

		if (reply || link->reader == NULL)
			return reply;
		if (is_late)
			return fail_to_answer(link, begun, deadline);
		if (link->limit)
			deadline = Min(deadline, link->limit);
		events = channel_read_event(&link->channel);
		if (send_buffer_unsent(&link->out) > 0)
			events |= channel_write_event(&link->channel);
		events = wait_for_socket(link, events, deadline);

		/* Read what is there even so: `attend` may have taken long. */
		is_late = clock_now() >= deadline;
		if ((events & channel_write_event(&link->channel)) && !write_some(link))
			break;
		if ((events & channel_read_event(&link->channel)) && !read_some(link))
			break;
		if (to_send > 0 && (send_buffer_unsent(&link->out) == 0 || to_send - send_buffer_unsent(&link->out) >= SENT_BYTES))
		{
			to_send = send_buffer_unsent(&link->out);
			begun = clock_now();
			deadline = TimestampTzPlusMilliseconds(begun, outbox_command_timeout);
		}
	}
	return NULL;
}

/*
 * Waits until a reply begins to arrive or the link fails, sending meanwhile, but
 * not longer than that. Returns false if the time is up.
 */
bool
redis_link_await(RedisLink *link, TimestampTz until)
{
	while (link->reader && link->received == 0)
	{
		int			events = channel_read_event(&link->channel);

		if (send_buffer_unsent(&link->out) > 0)
			events |= channel_write_event(&link->channel);
		events = wait_for_socket(link, events, until);
		if (events == 0)
			return false;
		if ((events & channel_write_event(&link->channel)) && !write_some(link))
			break;
		if (events & channel_read_event(&link->channel))
			(void) read_some(link);
	}
	return true;
}

/* Returns the next reply if all of it has been read; NULL if it has not, or the link failed. */
static redisReply *
take_reply(RedisLink *link)
{
	void	   *reply = NULL;

	if (redisReaderGetReply(link->reader, &reply) != REDIS_OK)
	{
		redis_link_fail(link, "invalid reply: %s", link->reader->errstr);
		return NULL;
	}
	if (reply)
		link->received = link->reader->len - link->reader->pos;
	return reply;
}

/* Sends one command, given as strings, and waits for its reply. */
redisReply *
redis_link_call(RedisLink *link, int argc, const char **argv)
{
	return redis_link_send_strings(link, argc, argv) ? redis_link_receive(link) : NULL;
}

/* Overwrites what was sent, which had a password in it. */
void
redis_link_wipe(RedisLink *link)
{
	if (send_buffer_unsent(&link->out) == 0)
		explicit_bzero(link->out.data, link->out.maxlen);
}

/* Makes the parser of replies; from now on the link is open. */
static bool
open_reader(RedisLink *link)
{
	link->reader = redisReaderCreate();
	if (link->reader)
		resp_limit_replies(link->reader, &link->elements);
	else
		redis_link_fail(link, "out of memory");
	return link->reader != NULL;
}

/* Notes why the channel could not connect, if it could not. */
static bool
note_dialed(RedisLink *link, bool connected)
{
	if (!connected)
		redis_link_fail(link, "%s", link->channel.error);
	return connected;
}

/* Writes what the socket takes. Returns false if the link failed. */
static bool
write_some(RedisLink *link)
{
	while (link->reader && send_buffer_unsent(&link->out) > 0)
	{
		int			n = channel_write(&link->channel, link->out.data + link->out.cursor, send_buffer_unsent(&link->out));

		if (n < 0)
			redis_link_fail(link, "could not send: %s", link->channel.error);
		if (n <= 0)
			return n == 0;
		link->out.cursor += n;
	}
	if (link->reader)
		send_buffer_empty(&link->out);
	return link->reader != NULL;
}

/* Notes that no answer came, and returns none. Of a share of the time for connecting nothing may have been left. */
static redisReply *
fail_to_answer(RedisLink *link, TimestampTz begun, TimestampTz deadline)
{
	if (link->limit && deadline >= link->limit)
		redis_link_fail(link, "it did not answer within its share of outbox.connect_timeout");
	else
		redis_link_fail(link, "it did not answer within %ld ms", TimestampDifferenceMilliseconds(begun, deadline));
	return NULL;
}

/* Reads what is there. Returns false if the link failed. */
static bool
read_some(RedisLink *link)
{
	char		bytes[READ_BYTES];

	do
	{
		int			n = channel_read(&link->channel, bytes, sizeof(bytes));

		if (n < 0)
			fail_to_read(link);
		else if (n > 0)
			take_bytes(link, bytes, n);
	} while (link->reader && channel_has_unread(&link->channel));
	return link->reader != NULL;
}

/* Hands what was read to the parser. */
static void
take_bytes(RedisLink *link, const char *bytes, int n)
{
	if (!link->has_answered && link->channel.tls == NULL && bytes[0] == TLS_ALERT)
	{
		redis_link_fail(link, "the server expects TLS");
		return;
	}
	link->has_answered = true;
	link->received += n;
	if (link->received > MAX_REPLY_BYTES)
		redis_link_fail(link, "its reply is too large");
	else if (redisReaderFeed(link->reader, bytes, n) != REDIS_OK)
		redis_link_fail(link, "out of memory");
}

/* Notes that reading failed. A Redis that expects TLS hangs up on others without a word. */
static void
fail_to_read(RedisLink *link)
{
	bool		may_expect_tls = !link->has_answered && link->channel.tls == NULL;

	redis_link_fail(link, may_expect_tls ? "connection lost before the first reply: %s; the server may expect TLS or not be Redis" :
					"connection lost: %s", link->channel.error);
}

/* Waits for the socket; returns the events, 0 if the time is up. */
static int
wait_for_socket(RedisLink *link, int events, TimestampTz deadline)
{
	return channel_wait(&link->channel, events, deadline, link->attend);
}
