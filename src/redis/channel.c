/*
 * channel.c
 *		A connected socket, unencrypted or with TLS.
 *
 * Called by channel_dial.c and redis_link.c. Nothing here but channel_wait() waits or
 * raises an error: what cannot be done now returns 0, and what has failed returns -1 or
 * false, with the reason in channel->error.
 */
#include "postgres.h"

#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "storage/fd.h"
#include "storage/latch.h"

#include "src/foreign_text.h"
#include "src/redis/channel.h"
#include "src/wait_event.h"

static bool begin_connecting(Channel *channel, const struct sockaddr *address, socklen_t size);
static int	note_result(Channel *channel, ssize_t result);
static void note_error(Channel *channel, const char *error);

/* Makes a channel that is closed. */
void
channel_init(Channel *channel)
{
	channel->socket = -1;
	channel->tls = NULL;
	channel->error[0] = '\0';
}

/* Begins to connect to a numeric address. When the socket is writable, channel_is_connected() tells whether it is. */
bool
channel_open(Channel *channel, const char *address, int port)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	char		service[16];
	int			on = 1;
	int			failure;
	bool		begun;

	snprintf(service, sizeof(service), "%d", port);
	failure = getaddrinfo(address, service, &hints, &found);
	if (failure != 0)
	{
		note_error(channel, foreign_text_lookup_error(failure));
		return false;
	}
	begun = begin_connecting(channel, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	if (begun)
		(void) setsockopt(channel->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return begun;
}

/* The same for the path of a Unix-domain socket. */
bool
channel_open_path(Channel *channel, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlcpy(address.sun_path, path, sizeof(address.sun_path)) >= sizeof(address.sun_path))
	{
		note_error(channel, "the path is too long");
		return false;
	}
	return begin_connecting(channel, (struct sockaddr *) &address, sizeof(address));
}

/* Check whether connecting has succeeded; otherwise it has failed. */
bool
channel_is_connected(Channel *channel)
{
	int			failure = 0;
	socklen_t	size = sizeof(failure);

	if (getsockopt(channel->socket, SOL_SOCKET, SO_ERROR, &failure, &size) < 0)
		failure = errno;
	if (failure != 0)
		note_error(channel, foreign_text_error(failure));
	return failure == 0;
}

/* Prepares TLS with a server that is called by this name or address; channel_handshake() begins it. */
bool
channel_begin_tls(Channel *channel, const char *host)
{
	channel->tls = tls_open(channel->socket, host, channel->error, sizeof(channel->error));
	return channel->tls != NULL;
}

/* Takes the next step of the handshake of TLS. Returns 1 when it is done, 0 if channel_read_event() must be waited for. */
int
channel_handshake(Channel *channel)
{
	return note_result(channel, tls_handshake(channel->tls));
}

/* Closes the channel, if it is open. */
void
channel_close(Channel *channel)
{
	if (channel->tls)
		tls_close(channel->tls);
	channel->tls = NULL;
	if (channel->socket >= 0)
	{
		(void) close(channel->socket);
		ReleaseExternalFD();
	}
	channel->socket = -1;
}

/* Reads what is there. Returns the number of bytes, or 0 if channel_read_event() must be waited for. */
int
channel_read(Channel *channel, char *bytes, size_t size)
{
	ssize_t		n;

	if (channel->tls)
		return note_result(channel, tls_read(channel->tls, bytes, size));
	n = recv(channel->socket, bytes, size, 0);
	if (n == 0)
	{
		note_error(channel, "the server closed the connection");
		return -1;
	}
	return note_result(channel, n);
}

/*
 * Writes what the socket takes. Returns the number of bytes, or 0 if
 * channel_write_event() must be waited for; the next call must have the same bytes
 * then, perhaps with more behind them.
 */
int
channel_write(Channel *channel, const char *bytes, size_t size)
{
	size = Min(size, INT_MAX);
	return note_result(channel, channel->tls ? tls_write(channel->tls, bytes, size) :
					   send(channel->socket, bytes, size, 0));
}

/* Check whether channel_read() has something that the socket will not tell of. */
bool
channel_has_unread(const Channel *channel)
{
	return channel->tls && tls_has_unread(channel->tls);
}

/* Returns the event of the socket after which reading, or the handshake, can go on. */
int
channel_read_event(const Channel *channel)
{
	return channel->tls ? tls_read_event(channel->tls) : WL_SOCKET_READABLE;
}

/* Returns the event of the socket after which writing can go on. */
int
channel_write_event(const Channel *channel)
{
	return channel->tls ? tls_write_event(channel->tls) : WL_SOCKET_WRITEABLE;
}

/* Waits for events of the socket; see socket_wait(). */
int
channel_wait(Channel *channel, int events, TimestampTz deadline, LinkAttend attend)
{
	return socket_wait(channel->socket, events, deadline, attend, wait_event_of(OUTBOX_WAIT_REDIS));
}

/* Makes a socket that does not block, and begins to connect it. */
static bool
begin_connecting(Channel *channel, const struct sockaddr *address, socklen_t size)
{
	if (!AcquireExternalFD())
	{
		note_error(channel, "no file descriptor is free");
		return false;
	}
	channel->socket = socket(address->sa_family, SOCK_STREAM, 0);
	if (channel->socket < 0)
		ReleaseExternalFD();
	if (channel->socket >= 0 && pg_set_noblock(channel->socket) &&
		fcntl(channel->socket, F_SETFD, FD_CLOEXEC) == 0 &&
		(connect(channel->socket, address, size) == 0 || errno == EINPROGRESS || errno == EINTR))
		return true;
	note_error(channel, foreign_text_error(errno));
	return false;
}

/* Turns what a call has returned into what ours return, and notes why it failed. */
static int
note_result(Channel *channel, ssize_t result)
{
	if (result >= 0)
		return (int) result;
	if (channel->tls)
		note_error(channel, tls_error(channel->tls));
	else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return 0;
	else
		note_error(channel, foreign_text_error(errno));
	return -1;
}

/* Notes why the channel failed. */
static void
note_error(Channel *channel, const char *error)
{
	foreign_text_copy(channel->error, sizeof(channel->error), error, strlen(error));
}
