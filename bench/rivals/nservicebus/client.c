/*
 * client.c
 *		Handles messages in the shape of NServiceBus' outbox: CONNINFO SOCKET CLIENTS SECONDS [floor]
 *
 * The process that handles a message dispatches what it sends: look whether the
 * id is known; in a transaction the business change and one row with the id and
 * the outgoing operations; send them; mark the row as dispatched. So pgbench cannot
 * do it, and this prints what pgbench would: clients are threads with a connection
 * each to PostgreSQL and Redis. With "floor" it runs the transaction of the
 * round-trip floor instead, which shows what such a client saves beside pgbench.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hiredis.h>
#include <libpq-fe.h>

typedef struct Client
{
	pthread_t	thread;
	int			number;
	uint64_t	random;
	PGconn	   *connection;
	redisContext *redis;
	long		handled;
} Client;

static double deadline;
static bool floor_only;

static void connect_client(Client *client, const char *conninfo, const char *socket);
static void *run_client(void *argument);
static void handle_message(Client *client);
static void run_floor(Client *client, const char *number);
static void run(Client *client, const char *statement, const char *first, const char *second);
static void dispatch(Client *client, const char *id, const char *body);
static void prepare(Client *client, const char *name, const char *query);
static void die(const char *what, const char *why);
static double now(void);

int
main(int argc, char **argv)
{
	int			count = atoi(argv[3]);
	Client	   *clients = calloc(count, sizeof(Client));
	double		start;
	long		handled = 0;

	floor_only = argc > 5;
	for (int i = 0; i < count; i++)
	{
		clients[i].number = i;
		connect_client(&clients[i], argv[1], argv[2]);
	}
	start = now();
	deadline = start + atof(argv[4]);
	for (int i = 0; i < count; i++)
		pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
	for (int i = 0; i < count; i++)
	{
		pthread_join(clients[i].thread, NULL);
		handled += clients[i].handled;
	}
	printf("number of transactions actually processed: %ld\n", handled);
	printf("tps = %f\n", handled / (now() - start));
	return 0;
}

static void
connect_client(Client *client, const char *conninfo, const char *socket)
{
	client->random = ((uint64_t) time(NULL) << 20) * 2654435761u + client->number * UINT64_C(0x9e3779b97f4a7c15);
	client->connection = PQconnectdb(conninfo);
	if (PQstatus(client->connection) != CONNECTION_OK)
		die("PostgreSQL", PQerrorMessage(client->connection));
	client->redis = redisConnectUnix(socket);
	if (client->redis == NULL || client->redis->err)
		die("Redis", "no connection");
	prepare(client, "begin", "BEGIN");
	prepare(client, "change", "INSERT INTO business (number, value) VALUES ($1, 'changed')");
	prepare(client, "commit", "COMMIT");
	prepare(client, "one", "SELECT 1");
	if (floor_only)
		return;
	prepare(client, "look", "SELECT dispatched, operations FROM outbox_data WHERE message_id = $1");
	prepare(client, "store", "INSERT INTO outbox_data (message_id, operations, persistence_version) VALUES ($1, $2, '1.0.0.0')");
	prepare(client, "mark", "UPDATE outbox_data SET dispatched = true, dispatched_at = now(), operations = '[]' WHERE message_id = $1");
}

static void *
run_client(void *argument)
{
	Client	   *client = argument;

	while (now() < deadline)
	{
		handle_message(client);
		client->handled++;
	}
	PQfinish(client->connection);
	redisFree(client->redis);
	return NULL;
}

static void
handle_message(Client *client)
{
	char		number[32];
	char		id[64];
	char		body[128];
	char		operations[256];

	/* xorshift */
	client->random ^= client->random << 13;
	client->random ^= client->random >> 7;
	client->random ^= client->random << 17;
	snprintf(number, sizeof(number), "%llu", (unsigned long long) (client->random % UINT64_C(9000000000000000)));
	if (floor_only)
	{
		run_floor(client, number);
		return;
	}
	snprintf(id, sizeof(id), "message-%s-%d", number, client->number);
	snprintf(body, sizeof(body), "{\"type\": \"BalanceChanged\", \"account\": %s, \"delta\": -100}", number);
	snprintf(operations, sizeof(operations), "[{\"dest\": \"bench\", \"body\": %s}]", body);

	run(client, "look", id, NULL);
	run(client, "begin", NULL, NULL);
	run(client, "change", number, NULL);
	run(client, "store", id, operations);
	run(client, "commit", NULL, NULL);
	dispatch(client, id, body);
	run(client, "mark", id, NULL);
}

static void
run_floor(Client *client, const char *number)
{
	run(client, "begin", NULL, NULL);
	run(client, "one", NULL, NULL);
	run(client, "change", number, NULL);
	run(client, "one", NULL, NULL);
	run(client, "one", NULL, NULL);
	run(client, "commit", NULL, NULL);
}

static void
run(Client *client, const char *statement, const char *first, const char *second)
{
	const char *values[] = {first, second};
	PGresult   *result = PQexecPrepared(client->connection, statement, (first != NULL) + (second != NULL), values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		die(statement, PQerrorMessage(client->connection));
	PQclear(result);
}

static void
dispatch(Client *client, const char *id, const char *body)
{
	redisReply *reply = redisCommand(client->redis, "XADD bench * id %s body %s", id, body);

	if (reply == NULL || reply->type != REDIS_REPLY_STRING)
		die("XADD", reply ? reply->str : client->redis->errstr);
	freeReplyObject(reply);
}

static void
prepare(Client *client, const char *name, const char *query)
{
	PGresult   *result = PQprepare(client->connection, name, query, 0, NULL);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die(query, PQerrorMessage(client->connection));
	PQclear(result);
}

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "nservicebus: %s: %s\n", what, why);
	exit(1);
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}
