/*
 * channel.h
 *		A connected socket, in clear or with TLS.
 */
#ifndef OUTBOX_CHANNEL_H
#define OUTBOX_CHANNEL_H

#include "src/foreign_text.h"
#include "src/redis/socket_wait.h"
#include "src/redis/tls.h"

typedef struct Channel
{
	int			socket;			/* -1 = none */
	Tls		   *tls;			/* NULL = in clear */
	char		error[FOREIGN_TEXT_BYTES];	/* why it failed */
} Channel;

extern void channel_init(Channel *channel);
extern bool channel_open(Channel *channel, const char *address, int port);
extern bool channel_open_path(Channel *channel, const char *path);
extern bool channel_is_connected(Channel *channel);
extern bool channel_begin_tls(Channel *channel, const char *host);
extern int	channel_handshake(Channel *channel);
extern void channel_close(Channel *channel);

extern int	channel_read(Channel *channel, char *bytes, size_t size);
extern int	channel_write(Channel *channel, const char *bytes, size_t size);
extern bool channel_has_unread(const Channel *channel);
extern int	channel_read_event(const Channel *channel);
extern int	channel_write_event(const Channel *channel);
extern int	channel_wait(Channel *channel, int events, TimestampTz deadline, LinkAttend attend);

#endif							/* OUTBOX_CHANNEL_H */
