/*
 * relay.c
 *		What the relays of the rivals share: a connection to PostgreSQL, and one to
 *		Redis on which XADDs are pipelined.
 *
 * The relays must be as good as a careful user would write them, for what they
 * cost is compared with the outbox: queries are prepared, each reply of Redis is
 * checked, and while Redis works on one batch the next is written. They must not
 * let go of a message before relay_flush() has returned.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis.h>

#include "bench/rivals/relay.h"

static redisContext *redis;
static int	unsent;				/* XADDs that are only in hiredis' buffer */
static int	unanswered;			/* XADDs that Redis was sent */
static volatile sig_atomic_t stopped;

static void send_batch(void);
static void read_replies(void);

static void
stop(int number)
{
	stopped = 1;
}

/* Connects to Redis; from then on SIGTERM ends the relay at the next look at relay_is_stopped(). */
void
relay_start(const char *redis_socket)
{
	struct sigaction action = {.sa_handler = stop};

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	redis = redisConnectUnix(redis_socket);
	if (redis == NULL || redis->err)
		relay_die("Redis", redis ? redis->errstr : "out of memory");
}

bool
relay_is_stopped(void)
{
	return stopped != 0;
}

/* Ends the process, unless it was told to end anyway: then nobody wants to hear of it. */
void
relay_die(const char *what, const char *why)
{
	if (stopped)
		exit(0);
	fprintf(stderr, "relay: %s: %s\n", what, why);
	exit(1);
}

PGconn *
relay_connect(const char *conninfo)
{
	PGconn	   *connection = PQconnectdb(conninfo);

	if (PQstatus(connection) != CONNECTION_OK)
		relay_die("PostgreSQL", PQerrorMessage(connection));
	return connection;
}

void
relay_prepare(PGconn *connection, const char *name, const char *query)
{
	PGresult   *result = PQprepare(connection, name, query, 0, NULL);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		relay_die(query, PQerrorMessage(connection));
	PQclear(result);
}

/* Runs a command whose result nobody needs. */
void
relay_do(PGconn *connection, const char *command)
{
	PGresult   *result = PQexec(connection, command);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		relay_die(command, PQerrorMessage(connection));
	PQclear(result);
}

/* Runs a prepared query with one parameter, or none if it is NULL. The caller clears the result. */
PGresult *
relay_query(PGconn *connection, const char *name, const char *value)
{
	PGresult   *result = PQexecPrepared(connection, name, value ? 1 : 0, &value, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		relay_die(name, PQerrorMessage(connection));
	return result;
}

/* Queues the XADD of a message. */
void
relay_add(const char *stream, const char *id, const char *body, size_t length)
{
	const char *arguments[] = {"XADD", stream, "*", "id", id, "body", body};
	size_t		lengths[] = {4, strlen(stream), 1, 2, strlen(id), 4, length};

	if (redisAppendCommandArgv(redis, 7, arguments, lengths) != REDIS_OK)
		relay_die("Redis", redis->errstr);
	if (++unsent == RELAY_BATCH)
		send_batch();
}

/* Returns when Redis has all messages that were added. */
void
relay_flush(void)
{
	send_batch();
	read_replies();
}

/* Sends what is queued; the batch before it is answered when this returns. */
static void
send_batch(void)
{
	int			done = 0;

	while (!done)
	{
		if (redisBufferWrite(redis, &done) != REDIS_OK)
			relay_die("Redis", redis->errstr);
	}
	read_replies();
	unanswered = unsent;
	unsent = 0;
}

static void
read_replies(void)
{
	for (; unanswered > 0; unanswered--)
	{
		redisReply *reply;

		if (redisGetReply(redis, (void **) &reply) != REDIS_OK)
			relay_die("Redis", redis->errstr);
		if (reply->type != REDIS_REPLY_STRING)
			relay_die("XADD", reply->str);
		freeReplyObject(reply);
	}
}
