/*
 * probe.c
 *		Measures how long a message takes to its stream:
 *		CONNINFO SOCKET STATEMENT COUNT PAUSE_MS SECONDS [pace]
 *
 * STATEMENT enqueues one message for the stream "probe" with the body $1. A second
 * thread waits for it in a blocked XREAD. The next message follows PAUSE_MS after
 * the arrival of the last one; with "pace", PAUSE_MS after that was sent. Prints,
 * for each message, the microseconds from the return of the commit until arrival.
 * Both ends read the same clock.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hiredis.h>
#include <libpq-fe.h>

#define LIMIT_S				60	/* a message that takes longer is lost */

static const char *socket_path;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrival;
static double *arrived;
static int	arrivals;
static bool reader_is_ready;

static void *read_arrivals(void *argument);
static void note_arrivals(redisReply *streams, char *last, size_t size);
static void wait_for(int count);
static void send_message(PGconn *connection, int number);
static void sleep_until(double time);
static double now(void);
static void die(const char *what, const char *why);

int
main(int argc, char **argv)
{
	PGconn	   *connection = PQconnectdb(argv[1]);
	int			count = atoi(argv[4]);
	double		pause = atof(argv[5]) / 1000;
	double		deadline = now() + atof(argv[6]);
	bool		paced = argc > 7;
	double	   *returned = calloc(count, sizeof(double));
	pthread_condattr_t monotonic;
	pthread_t	reader;
	int			sent;

	socket_path = argv[2];
	arrived = calloc(count, sizeof(double));
	if (PQstatus(connection) != CONNECTION_OK)
		die("PostgreSQL", PQerrorMessage(connection));
	if (PQresultStatus(PQprepare(connection, "enqueue", argv[3], 0, NULL)) != PGRES_COMMAND_OK)
		die(argv[3], PQerrorMessage(connection));
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&arrival, &monotonic);
	pthread_create(&reader, NULL, read_arrivals, NULL);
	wait_for(-1);

	for (sent = 0; sent < count && now() < deadline; sent++)
	{
		double		start = now();

		send_message(connection, sent);
		returned[sent] = now();
		if (!paced)
			wait_for(sent + 1);
		sleep_until((paced ? start : now()) + pause);
	}
	wait_for(sent);
	for (int i = 0; i < sent; i++)
		printf("%.0f\n", (arrived[i] - returned[i]) * 1e6);
	return 0;
}

/* The second thread: reads the stream for ever. */
static void *
read_arrivals(void *argument)
{
	redisContext *redis = redisConnectUnix(socket_path);
	char		last[64] = "0-0";

	if (redis == NULL || redis->err)
		die("Redis", "no connection");
	freeReplyObject(redisCommand(redis, "DEL probe"));
	pthread_mutex_lock(&mutex);
	reader_is_ready = true;
	pthread_cond_signal(&arrival);
	pthread_mutex_unlock(&mutex);
	for (;;)
	{
		redisReply *reply = redisCommand(redis, "XREAD BLOCK 0 STREAMS probe %s", last);

		if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
			die("XREAD", reply ? reply->str : redis->errstr);
		if (reply->type == REDIS_REPLY_ARRAY)
			note_arrivals(reply, last, sizeof(last));
		freeReplyObject(reply);
	}
	return NULL;
}

/* The entries of a stream are pairs: an id, and fields with their values. */
static void
note_arrivals(redisReply *streams, char *last, size_t size)
{
	double		time = now();
	redisReply *entries = streams->element[0]->element[1];

	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < entries->elements; i++)
	{
		redisReply *fields = entries->element[i]->element[1];

		snprintf(last, size, "%s", entries->element[i]->element[0]->str);
		for (size_t f = 0; f + 1 < fields->elements; f += 2)
		{
			const char *number = strstr(fields->element[f + 1]->str, "\"account\": ");

			if (number && strcmp(fields->element[f]->str, "body") == 0)
			{
				arrived[atoi(number + strlen("\"account\": "))] = time;
				arrivals++;
			}
		}
	}
	pthread_cond_signal(&arrival);
	pthread_mutex_unlock(&mutex);
}

/* Waits until so many messages have arrived; with -1, until the reader is ready. */
static void
wait_for(int count)
{
	double		limit = now() + LIMIT_S;
	struct timespec until = {.tv_sec = (time_t) limit};

	pthread_mutex_lock(&mutex);
	while (count < 0 ? !reader_is_ready : arrivals < count)
	{
		if (pthread_cond_timedwait(&arrival, &mutex, &until) == ETIMEDOUT)
			die("probe", "a message did not arrive within a minute");
	}
	pthread_mutex_unlock(&mutex);
}

static void
send_message(PGconn *connection, int number)
{
	char		body[128];
	const char *value = body;
	PGresult   *result;

	snprintf(body, sizeof(body), "{\"type\": \"BalanceChanged\", \"account\": %d, \"delta\": -100}", number);
	result = PQexecPrepared(connection, "enqueue", 1, &value, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		die("enqueue", PQerrorMessage(connection));
	PQclear(result);
}

static void
sleep_until(double time)
{
	double		left = time - now();

	if (left > 0)
		usleep(left * 1e6);
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "probe: %s: %s\n", what, why);
	exit(1);
}
