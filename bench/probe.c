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
 *
 * If CONNINFO is "file:PATH", no PostgreSQL takes part. It is measured what a relay
 * needs at least that sends nothing before it is on disk: another process is told,
 * writes and flushes a page of that file, and adds the message.
 */
#include <errno.h>
#include <fcntl.h>
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
#define PAGE_BYTES			8192
#define FILE_PAGES			256 /* written before, like a segment of the WAL */
#define FILE_PREFIX			"file:"

static const char *socket_path;
static PGconn *connection;
static int	relay = -1;			/* a pipe to the process that flushes; -1 =
								 * there is none */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrival;
static double *arrived;
static int	arrivals;
static bool reader_is_ready;

static void connect_to(const char *conninfo, const char *statement);
static void start_relay(const char *path);
static void run_relay(int file, int messages);
static void write_page(int file, int page);
static void flush(int file);
static void *read_arrivals(void *argument);
static void note_arrivals(redisReply *streams, char *last, size_t size);
static void wait_for(int count);
static void send_message(int number);
static void execute_statement(int number);
static void write_body(char *body, size_t size, int number);
static void sleep_until(double time);
static double now(void);
static void die(const char *what, const char *why);

int
main(int argc, char **argv)
{
	int			count = atoi(argv[4]);
	double		pause = atof(argv[5]) / 1000;
	double		deadline;
	bool		paced = argc > 7;
	double	   *returned = calloc(count, sizeof(double));
	pthread_condattr_t monotonic;
	pthread_t	reader;
	int			sent;

	socket_path = argv[2];
	arrived = calloc(count, sizeof(double));
	if (strncmp(argv[1], FILE_PREFIX, strlen(FILE_PREFIX)) == 0)
		start_relay(argv[1] + strlen(FILE_PREFIX));
	else
		connect_to(argv[1], argv[3]);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&arrival, &monotonic);
	pthread_create(&reader, NULL, read_arrivals, NULL);
	wait_for(-1);

	deadline = now() + atof(argv[6]);
	for (sent = 0; sent < count && now() < deadline; sent++)
	{
		double		start = now();

		send_message(sent);
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

static void
connect_to(const char *conninfo, const char *statement)
{
	connection = PQconnectdb(conninfo);
	if (PQstatus(connection) != CONNECTION_OK)
		die("PostgreSQL", PQerrorMessage(connection));
	if (PQresultStatus(PQprepare(connection, "enqueue", statement, 0, NULL)) != PGRES_COMMAND_OK)
		die(statement, PQerrorMessage(connection));
}

/* Starts the process that flushes; it ends when the pipe to it is closed. */
static void
start_relay(const char *path)
{
	int			file = open(path, O_RDWR | O_CREAT, 0600);
	int			ends[2];

	if (file < 0)
		die(path, strerror(errno));
	for (int page = 0; page < FILE_PAGES; page++)
		write_page(file, page);
	flush(file);
	if (pipe(ends) != 0)
		die("pipe", strerror(errno));
	relay = ends[1];
	if (fork() == 0)
	{
		close(relay);
		run_relay(file, ends[0]);
		_exit(0);
	}
	close(ends[0]);
}

/* The process that flushes: adds each message when a page is on disk. */
static void
run_relay(int file, int messages)
{
	redisContext *redis = redisConnectUnix(socket_path);
	int			number;

	if (redis == NULL || redis->err)
		die("Redis", "no connection");
	while (read(messages, &number, sizeof(number)) == sizeof(number))
	{
		char		body[128];

		write_body(body, sizeof(body), number);
		write_page(file, number % FILE_PAGES);
		flush(file);
		freeReplyObject(redisCommand(redis, "XADD probe * id %d time 1700000000000 body %s", number, body));
	}
}

static void
write_page(int file, int page)
{
	static char bytes[PAGE_BYTES];

	if (pwrite(file, bytes, sizeof(bytes), (off_t) page * PAGE_BYTES) != sizeof(bytes))
		die("write", strerror(errno));
}

static void
flush(int file)
{
	if (fdatasync(file) != 0)
		die("flush", strerror(errno));
}

/* The second thread: reads the stream forever. */
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
send_message(int number)
{
	if (relay < 0)
		execute_statement(number);
	else if (write(relay, &number, sizeof(number)) != sizeof(number))
		die("relay", strerror(errno));
}

static void
execute_statement(int number)
{
	char		body[128];
	const char *value = body;
	PGresult   *result;

	write_body(body, sizeof(body), number);
	result = PQexecPrepared(connection, "enqueue", 1, &value, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		die("enqueue", PQerrorMessage(connection));
	PQclear(result);
}

static void
write_body(char *body, size_t size, int number)
{
	snprintf(body, size, "{\"type\": \"BalanceChanged\", \"account\": %d, \"delta\": -100}", number);
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
