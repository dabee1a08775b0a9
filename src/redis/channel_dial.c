/*
 * channel_dial.c
 *		Connects a channel: waits for the socket and for the handshake of TLS.
 *
 * Called by redis_link.c, when it is to connect, with a channel that is closed.
 * Failure is a result here: the reason is in channel->error, and the channel is
 * closed again. Only `attend`, which is called while we wait, may raise an error;
 * the channel is as far then as it has come, and the caller must close it. Nothing
 * here sends or reads what the connection is for.
 */
#include "postgres.h"

#include "storage/latch.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/redis/channel_dial.h"

static bool await_connection(Channel *channel, TimestampTz deadline, LinkAttend attend);
static bool shake_hands(Channel *channel, const char *host, TimestampTz deadline, LinkAttend attend);
static bool fail(Channel *channel, const char *format,...) pg_attribute_printf(2, 3);

/*
 * Connects to the first of these addresses that can be, each of which gets its share
 * of the time. With TLS, tls_host is what the server is called; otherwise it is NULL.
 */
bool
channel_dial(Channel *channel, const Addresses *addresses, int port, const char *tls_host,
			 TimestampTz deadline, LinkAttend attend)
{
	for (int i = 0; i < addresses->n; i++)
	{
		TimestampTz share = clock_share(deadline, addresses->n - i);

		if (!channel_open(channel, addresses->text[i], port))
			(void) fail(channel, "could not connect: %s", channel->error);
		else if (await_connection(channel, share, attend) &&
				 (tls_host == NULL || shake_hands(channel, tls_host, share, attend)))
			return true;
	}
	return false;
}

/* The same for the path of a Unix-domain socket. */
bool
channel_dial_path(Channel *channel, const char *path, TimestampTz deadline, LinkAttend attend)
{
	if (!channel_open_path(channel, path))
		return fail(channel, "could not connect: %s", channel->error);
	return await_connection(channel, deadline, attend);
}

/* Waits until a connect has succeeded or failed. */
static bool
await_connection(Channel *channel, TimestampTz deadline, LinkAttend attend)
{
	long		ms = TimestampDifferenceMilliseconds(clock_now(), deadline);

	if (channel_wait(channel, WL_SOCKET_WRITEABLE, deadline, attend) == 0)
		return fail(channel, "could not connect within %ld ms", ms);
	if (!channel_is_connected(channel))
		return fail(channel, "could not connect: %s", channel->error);
	return true;
}

/* Begins TLS on a connection, and waits until the server has proved who it is. */
static bool
shake_hands(Channel *channel, const char *host, TimestampTz deadline, LinkAttend attend)
{
	long		ms = TimestampDifferenceMilliseconds(clock_now(), deadline);
	int			done = channel_begin_tls(channel, host) ? channel_handshake(channel) : -1;

	while (done == 0)
	{
		if (clock_now() >= deadline || channel_wait(channel, channel_read_event(channel), deadline, attend) == 0)
			return fail(channel, "could not connect with TLS within %ld ms; the server may not speak it", ms);
		done = channel_handshake(channel);
	}
	if (done < 0)
		return fail(channel, "could not connect with TLS: %s", channel->error);
	return true;
}

/* Notes why the channel could not be connected, and closes it. Returns false. What it noted before may be a part of that. */
static bool
fail(Channel *channel, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	foreign_text_format(channel->error, sizeof(channel->error), format, args);
	va_end(args);
	channel_close(channel);
	return false;
}
