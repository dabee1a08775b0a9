/*
 * relay.c
 *		A consumer of PgQ that adds its events to Redis: CONNINFO SOCKET
 *
 * A batch is finished when Redis has all its events; one that a crash interrupts
 * is sent again.
 */
#include <unistd.h>

#include "bench/rivals/relay.h"

static bool move_batch(PGconn *connection);

int
main(int argc, char **argv)
{
	PGconn	   *connection = relay_connect(argv[1]);

	relay_start(argv[2]);
	relay_prepare(connection, "next", "SELECT pgq.next_batch('bench', 'relay')");
	relay_prepare(connection, "events", "SELECT ev_id, ev_type, ev_data FROM pgq.get_batch_events($1::bigint)");
	relay_prepare(connection, "finish", "SELECT pgq.finish_batch($1::bigint)");
	while (!relay_is_stopped())
	{
		if (!move_batch(connection))
			usleep(RELAY_POLL_US);
	}
	PQfinish(connection);
	return 0;
}

/* Returns whether there was a batch. */
static bool
move_batch(PGconn *connection)
{
	PGresult   *batch = relay_query(connection, "next", NULL);
	bool		found = !PQgetisnull(batch, 0, 0);

	if (found)
	{
		const char *id = PQgetvalue(batch, 0, 0);
		PGresult   *events = relay_query(connection, "events", id);

		for (int i = 0; i < PQntuples(events); i++)
			relay_add(PQgetvalue(events, i, 1), PQgetvalue(events, i, 0), PQgetvalue(events, i, 2), PQgetlength(events, i, 2));
		relay_flush();
		PQclear(events);
		PQclear(relay_query(connection, "finish", id));
	}
	PQclear(batch);
	return found;
}
