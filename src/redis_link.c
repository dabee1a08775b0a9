/*
 * redis_link.c
 *		One interruptible, deadline-bound connection to Redis.
 *
 * It knows sockets and replies, but neither logins nor messages. hiredis
 * does the protocol's reading and the socket calls; the waiting is ours, on
 * our latch and the socket together. Failure is a result here, never an error:
 * the text is in redis_link_error(). A link that failed is closed and must be
 * opened anew; nobody knows then what Redis has done with what was sent.
 */
#include "postgres.h"

#include <sys/socket.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/redis_link.h"
#include "src/resolver.h"
#include "src/settings.h"
#include "src/socket_wait.h"

#define PIECE_BYTES		(256 * 1024)	/* handed to hiredis at a time */
#define KEPT_BUFFER		(4 * 1024 * 1024)	/* what was larger is given back */

struct RedisLink
{
	LinkAttend	attend;
	redisContext *redis;		/* NULL = closed */
	StringInfoData out;			/* to be sent; out.cursor is how far we are */
	bool		stuck;			/* hiredis holds a piece that the socket did
								 * not take */
	char		error[256];
};

static bool open_socket(RedisLink *link, const char *address, int port, TimestampTz deadline);
static bool await_connection(RedisLink *link, TimestampTz deadline);
static bool write_some(RedisLink *link);
static bool read_some(RedisLink *link);
static int	wait_for(RedisLink *link, int events, TimestampTz deadline);
static TimestampTz deadline_after(int ms);
static uint32 wait_event(void);

/* Makes a closed link, which lives until redis_link_free(). */
RedisLink *
redis_link_create(LinkAttend attend)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	RedisLink  *link = palloc0(sizeof(RedisLink));

	link->attend = attend;
	initStringInfo(&link->out);
	MemoryContextSwitchTo(caller);
	return link;
}

/* Closes and forgets a link. */
void
redis_link_free(RedisLink *link)
{
	redis_link_close(link);
	pfree(link->out.data);
	pfree(link);
}

/* Connects to a host, trying all its addresses. Whatever was open is closed. */
bool
redis_link_dial(RedisLink *link, const char *host, int port, TimestampTz deadline)
{
	Addresses	addresses;
	const char *failure;

	redis_link_close(link);
	failure = resolver_find(host, deadline, link->attend, &addresses);
	if (failure)
	{
		redis_link_fail(link, "could not look up the host: %s", failure);
		return false;
	}
	for (int i = 0; i < addresses.n; i++)
	{
		if (open_socket(link, addresses.text[i], port, deadline))
			return true;
	}
	return false;
}

/* Connects to a unix socket. Whatever was open is closed. */
bool
redis_link_dial_path(RedisLink *link, const char *path, TimestampTz deadline)
{
	redis_link_close(link);
	return open_socket(link, path, 0, deadline);
}

bool
redis_link_is_open(const RedisLink *link)
{
	return link->redis != NULL;
}

/* Drops the connection, if there is one, and what was not yet sent. */
void
redis_link_close(RedisLink *link)
{
	if (link->redis)
	{
		redisFree(link->redis);
		link->redis = NULL;
		ReleaseExternalFD();
	}
	link->stuck = false;
	redis_link_empty_buffer(&link->out);
}

/* Why the link failed last. Holds no password. */
const char *
redis_link_error(const RedisLink *link)
{
	return link->error;
}

/* Notes why the link is of no use, and closes it. */
void
redis_link_fail(RedisLink *link, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(link->error, sizeof(link->error), format, args);
	va_end(args);
	redis_link_close(link);
}

/* Attends to others although nothing is waited for. */
void
redis_link_attend(RedisLink *link)
{
	link->attend();
}

/*
 * Queues commands in the protocol's form and sends what the socket takes
 * without waiting. One redis_link_receive() is due for each command.
 */
bool
redis_link_send(RedisLink *link, const char *data, size_t size)
{
	appendBinaryStringInfo(&link->out, data, size);
	return write_some(link);
}

/*
 * The same for what is in a buffer of TopMemoryContext, which is empty when this returns. It is
 * copied only if something is still to be sent before it.
 */
bool
redis_link_send_buffer(RedisLink *link, StringInfo data)
{
	if (link->out.len > 0)
		appendBinaryStringInfo(&link->out, data->data, data->len);
	else
	{
		StringInfoData empty = link->out;

		link->out = *data;
		*data = empty;
	}
	redis_link_empty_buffer(data);
	return write_some(link);
}

/* Empties a buffer of TopMemoryContext; the memory of one that has become large is given back. */
void
redis_link_empty_buffer(StringInfo buffer)
{
	if (buffer->maxlen > KEPT_BUFFER)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		pfree(buffer->data);
		initStringInfo(buffer);
		MemoryContextSwitchTo(caller);
	}
	else
		resetStringInfo(buffer);
}

/*
 * Waits for the next reply, sending meanwhile. NULL if the link failed: the
 * other side went away, or nothing moved for outbox.command_timeout. The
 * caller frees the reply before it does anything that can raise an error.
 */
redisReply *
redis_link_receive(RedisLink *link)
{
	TimestampTz deadline = deadline_after(outbox_command_timeout);

	while (link->redis)
	{
		void	   *reply = NULL;
		int			events;

		if (redisGetReplyFromReader(link->redis, &reply) != REDIS_OK)
		{
			redis_link_fail(link, "Redis sent garbage: %s", link->redis->errstr);
			break;
		}
		if (reply)
			return reply;

		events = WL_SOCKET_READABLE;
		if (link->stuck || link->out.cursor < link->out.len)
			events |= WL_SOCKET_WRITEABLE;
		events = wait_for(link, events, deadline);
		if (events == 0)
		{
			redis_link_fail(link, "Redis did not answer within %d ms", outbox_command_timeout);
			break;
		}
		if ((events & WL_SOCKET_WRITEABLE) && !write_some(link))
			break;
		if ((events & WL_SOCKET_READABLE) && !read_some(link))
			break;
		deadline = deadline_after(outbox_command_timeout);
	}
	return NULL;
}

/* Sends one command of strings and waits for its reply. */
redisReply *
redis_link_call(RedisLink *link, int argc, const char **argv)
{
	return redis_link_call_binary(link, argc, argv, NULL);
}

/* The same for arguments that may hold any bytes. */
redisReply *
redis_link_call_binary(RedisLink *link, int argc, const char **argv, const size_t *sizes)
{
	char	   *command;
	int			size = redisFormatCommandArgv(&command, argc, argv, sizes);
	bool		sent;

	if (size < 0)
		elog(ERROR, "could not format a command for Redis");
	sent = redis_link_send(link, command, size);
	redisFreeCommand(command);
	return sent ? redis_link_receive(link) : NULL;
}

/* Port 0: the address is the path of a unix socket. */
static bool
open_socket(RedisLink *link, const char *address, int port, TimestampTz deadline)
{
	if (!AcquireExternalFD())
	{
		redis_link_fail(link, "no file descriptor is free");
		return false;
	}
	link->redis = port > 0 ? redisConnectNonBlock(address, port) : redisConnectUnixNonBlock(address);
	if (link->redis == NULL)
	{
		ReleaseExternalFD();
		redis_link_fail(link, "out of memory");
		return false;
	}
	if (link->redis->err)
	{
		redis_link_fail(link, "could not connect: %s", link->redis->errstr);
		return false;
	}
	return await_connection(link, deadline);
}

static bool
await_connection(RedisLink *link, TimestampTz deadline)
{
	int			failure = 0;
	socklen_t	size = sizeof(failure);

	if (wait_for(link, WL_SOCKET_WRITEABLE, deadline) == 0)
	{
		redis_link_fail(link, "could not connect within %d ms", outbox_connect_timeout);
		return false;
	}
	if (getsockopt(link->redis->fd, SOL_SOCKET, SO_ERROR, &failure, &size) < 0)
		failure = errno;
	if (failure != 0)
	{
		redis_link_fail(link, "could not connect: %s", strerror(failure));
		return false;
	}
	link->redis->flags |= REDIS_CONNECTED;
	return true;
}

/*
 * Writes what the socket takes. hiredis moves the rest of its buffer to the
 * front after each write, so it is given a piece at a time.
 */
static bool
write_some(RedisLink *link)
{
	while (link->redis && (link->stuck || link->out.cursor < link->out.len))
	{
		int			done;

		if (!link->stuck)
		{
			size_t		piece = Min(link->out.len - link->out.cursor, PIECE_BYTES);

			if (redisAppendFormattedCommand(link->redis, link->out.data + link->out.cursor, piece) != REDIS_OK)
			{
				redis_link_fail(link, "out of memory");
				return false;
			}
			link->out.cursor += piece;
		}
		if (redisBufferWrite(link->redis, &done) != REDIS_OK)
		{
			redis_link_fail(link, "could not send: %s", link->redis->errstr);
			return false;
		}
		link->stuck = !done;
		if (link->stuck)
			break;
	}
	if (link->redis && !link->stuck)
		redis_link_empty_buffer(&link->out);
	return link->redis != NULL;
}

static bool
read_some(RedisLink *link)
{
	if (redisBufferRead(link->redis) == REDIS_OK)
		return true;
	redis_link_fail(link, "connection lost: %s", link->redis->errstr);
	return false;
}

/* Waits for the socket; returns the events, 0 when the time is up. */
static int
wait_for(RedisLink *link, int events, TimestampTz deadline)
{
	return socket_wait(link->redis->fd, events, deadline, link->attend, wait_event());
}

static TimestampTz
deadline_after(int ms)
{
	return TimestampTzPlusMilliseconds(clock_now(), ms);
}

static uint32
wait_event(void)
{
	static uint32 event;

	if (event == 0)
		event = compat_wait_event("OutboxRedis");
	return event;
}
