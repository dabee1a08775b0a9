/*
 * channel_dial.h
 *		Connects a channel, within a deadline.
 */
#ifndef OUTBOX_CHANNEL_DIAL_H
#define OUTBOX_CHANNEL_DIAL_H

#include "src/redis/channel.h"
#include "src/redis/resolver.h"
#include "src/redis/socket_wait.h"

extern bool channel_dial(Channel *channel, const Addresses *addresses, int port, const char *tls_host,
						 TimestampTz deadline, LinkAttend attend);
extern bool channel_dial_path(Channel *channel, const char *path, TimestampTz deadline, LinkAttend attend);

#endif							/* OUTBOX_CHANNEL_DIAL_H */
