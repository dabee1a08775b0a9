/*
 * relay.c
 *		Moves messages from a hand-written table to Redis: CONNINFO SOCKET [listen]
 *
 * Takes the oldest ones with SKIP LOCKED and DELETE, adds them to their streams,
 * and commits when Redis has them. What a crash interrupts is sent again. If a
 * batch was not full it waits a while, or until a notification comes. The
 * statistics of such a table are always wrong, and a plan made when it seemed
 * empty reads all of it for each batch: so the plan is not left to them.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "bench/rivals/relay.h"

#define TAKE "WITH gone AS (DELETE FROM outgoing_messages WHERE seq = ANY (ARRAY" \
	"(SELECT seq FROM outgoing_messages ORDER BY seq FOR UPDATE SKIP LOCKED LIMIT 500)) RETURNING seq, id, dest, body) " \
	"SELECT id, dest, body FROM gone ORDER BY seq"

static int	move_batch(PGconn *connection);
static void wait_for_notification(PGconn *connection);

int
main(int argc, char **argv)
{
	PGconn	   *connection = relay_connect(argv[1]);
	bool		listens = argc > 3;

	relay_start(argv[2]);
	relay_do(connection, "SET enable_seqscan = off");
	relay_prepare(connection, "take", TAKE);
	if (listens)
		relay_do(connection, "LISTEN outgoing_messages");
	while (!relay_is_stopped())
	{
		if (move_batch(connection) == RELAY_BATCH)
			continue;
		if (listens)
			wait_for_notification(connection);
		else
			usleep(RELAY_POLL_US);
	}
	PQfinish(connection);
	return 0;
}

/* Returns how many messages were moved. */
static int
move_batch(PGconn *connection)
{
	PGresult   *rows;
	int			count;

	relay_do(connection, "BEGIN");
	rows = relay_query(connection, "take", NULL);
	count = PQntuples(rows);
	for (int i = 0; i < count; i++)
		relay_add(PQgetvalue(rows, i, 1), PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 2), PQgetlength(rows, i, 2));
	relay_flush();
	PQclear(rows);
	relay_do(connection, "COMMIT");
	return count;
}

/* Returns when there was a notification; those that have arrived meanwhile count as one. */
static void
wait_for_notification(PGconn *connection)
{
	bool		notified = false;

	while (!notified && !relay_is_stopped())
	{
		struct pollfd socket = {.fd = PQsocket(connection), .events = POLLIN};
		PGnotify   *notification;

		while ((notification = PQnotifies(connection)) != NULL)
		{
			PQfreemem(notification);
			notified = true;
		}
		if (notified)
			return;
		poll(&socket, 1, 1000);
		if (!PQconsumeInput(connection))
			relay_die("LISTEN", PQerrorMessage(connection));
	}
}
