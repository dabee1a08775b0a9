/*
 * relay.h
 *		What the relays of the rivals share; see relay.c.
 */
#ifndef RELAY_H
#define RELAY_H

#include <stdbool.h>
#include <stddef.h>

#include <libpq-fe.h>

/* Messages in a batch, as the outbox has by default. */
#define RELAY_BATCH			500

/* Between two looks for messages, when the last batch was not full. */
#define RELAY_POLL_US		10000

extern void relay_start(const char *redis_socket);
extern bool relay_is_stopped(void);
extern void relay_die(const char *what, const char *why) __attribute__((noreturn));

extern PGconn *relay_connect(const char *conninfo);
extern void relay_prepare(PGconn *connection, const char *name, const char *query);
extern void relay_do(PGconn *connection, const char *command);
extern PGresult *relay_query(PGconn *connection, const char *name, const char *value);

extern void relay_add(const char *stream, const char *id, const char *body, size_t length);
extern void relay_flush(void);

#endif
