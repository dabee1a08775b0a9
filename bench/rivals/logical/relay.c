/*
 * relay.c
 *		Moves messages from the WAL to Redis by logical decoding: CONNINFO SOCKET
 *
 * Reads the slot "bench" with pgoutput, and confirms it up to the last commit
 * whose messages Redis has. What a crash interrupts is sent again.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "bench/rivals/relay.h"

#define START "START_REPLICATION SLOT bench LOGICAL 0/0 (proto_version '1', publication_names 'bench', messages 'true')"
#define DATA_HEADER			25	/* 'w', start, end, time */

static uint64_t decoded;		/* end of the last transaction that was
								 * decoded */
static bool wants_answer;

static void start_replication(PGconn *connection);
static int	receive(PGconn *connection);
static void handle(const char *data, int length);
static void handle_message(const char *message);
static void confirm(PGconn *connection);
static void wait_for_data(PGconn *connection);
static uint64_t number(const char *bytes, int size);
static void put_number(char *bytes, uint64_t value);

int
main(int argc, char **argv)
{
	PGconn	   *connection;
	char		conninfo[1024];

	snprintf(conninfo, sizeof(conninfo), "%s replication=database", argv[1]);
	connection = relay_connect(conninfo);
	relay_start(argv[2]);
	start_replication(connection);
	while (!relay_is_stopped())
	{
		int			received = receive(connection);

		if (received > 0 || wants_answer)
		{
			relay_flush();
			confirm(connection);
		}
		if (received == 0)
			wait_for_data(connection);
	}
	PQfinish(connection);
	return 0;
}

static void
start_replication(PGconn *connection)
{
	PGresult   *result = PQexec(connection, START);

	if (PQresultStatus(result) != PGRES_COPY_BOTH)
		relay_die(START, PQerrorMessage(connection));
	PQclear(result);
}

/* Handles what has arrived, some batches at most; returns how many pieces that was. */
static int
receive(PGconn *connection)
{
	int			count = 0;
	char	   *data;
	int			length = 1;

	while (count < 10 * RELAY_BATCH && (length = PQgetCopyData(connection, &data, 1)) > 0)
	{
		handle(data, length);
		PQfreemem(data);
		count++;
	}
	if (length < 0)
		relay_die("replication", PQerrorMessage(connection));
	return count;
}

/* Handles a piece of the stream: a keepalive, a message of pgoutput. */
static void
handle(const char *data, int length)
{
	if (data[0] == 'k' && data[17])
		wants_answer = true;
	if (data[0] != 'w' || length <= DATA_HEADER)
		return;
	if (data[DATA_HEADER] == 'M')
		handle_message(data + DATA_HEADER);
	else if (data[DATA_HEADER] == 'C')
		decoded = number(data + DATA_HEADER + 10, 8);
}

/* 'M', flags, position, prefix, length, content: the prefix is the stream, the position serves as id. */
static void
handle_message(const char *message)
{
	const char *prefix = message + 10;
	const char *content = prefix + strlen(prefix) + 1;
	char		id[17];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long) number(message + 2, 8));
	relay_add(prefix, id, content + 4, number(content, 4));
}

/* Tells the server that everything decoded so far need not be sent again. */
static void
confirm(PGconn *connection)
{
	char		status[34] = {'r'};

	for (int i = 0; i < 3; i++)
		put_number(status + 1 + 8 * i, decoded);
	if (PQputCopyData(connection, status, sizeof(status)) != 1 || PQflush(connection) != 0)
		relay_die("replication", PQerrorMessage(connection));
	wants_answer = false;
}

static void
wait_for_data(PGconn *connection)
{
	struct pollfd socket = {.fd = PQsocket(connection), .events = POLLIN};

	poll(&socket, 1, 1000);
	if (!PQconsumeInput(connection))
		relay_die("replication", PQerrorMessage(connection));
}

/* Big-endian, as everything in the protocol. */
static uint64_t
number(const char *bytes, int size)
{
	uint64_t	value = 0;

	for (int i = 0; i < size; i++)
		value = value << 8 | (unsigned char) bytes[i];
	return value;
}

static void
put_number(char *bytes, uint64_t value)
{
	for (int i = 7; i >= 0; i--, value >>= 8)
		bytes[i] = (char) value;
}
