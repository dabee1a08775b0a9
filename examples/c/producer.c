/*
 * producer.c
 *		Handles incoming messages: each becomes an order and an event, in one
 *		transaction.
 *
 *	 producer URL-OF-POSTGRESQL < messages
 *
 * Reads messages from standard input, one to a line: id, customer, amount. A
 * real program would get them from its broker and acknowledge each when
 * handle() has returned. Prints for each message whether it was processed, a
 * duplicate, or refused.
 */
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What has become of an attempt. */
typedef enum Outcome
{
	PROCESSED,
	DUPLICATE,
	REFUSED,
	AGAIN
} Outcome;

static Outcome handle(PGconn *connection, const char *const message[3], bool *clashed);
static PGresult *run(PGconn *connection, const char *sql, int nparams, const char *const *params);
static Outcome after_error(PGresult *result, bool *clashed);

/* The result of the statement that failed; NULL = none has. */
static PGresult *failed;

int
main(int argc, char **argv)
{
	static const char *const words[] = {"processed", "duplicate", "refused"};
	PGconn	   *connection;
	char		line[4096];

	if (argc != 2)
	{
		fprintf(stderr, "usage: producer URL-OF-POSTGRESQL < messages\n");
		return 1;
	}
	connection = PQconnectdb(argv[1]);
	while (fgets(line, sizeof(line), stdin))
	{
		const char *message[] = {strtok(line, " \n"), strtok(NULL, " \n"), strtok(NULL, " \n")};
		Outcome		outcome;
		bool		clashed = false;

		while ((outcome = handle(connection, message, &clashed)) == AGAIN)
		{
			if (PQstatus(connection) == CONNECTION_OK)
				continue;
			/* With the same id it is safe to begin again. */
			usleep(100 * 1000);
			PQreset(connection);
			if (PQstatus(connection) != CONNECTION_OK)
				fprintf(stderr, "trying again: %s", PQerrorMessage(connection));
		}
		printf("%s %s\n", message[0], words[outcome]);
		fflush(stdout);
	}
	PQfinish(connection);
	return 0;
}

/* Processes a message, or finds out why that cannot be. */
static Outcome
handle(PGconn *connection, const char *const message[3], bool *clashed)
{
	Outcome		outcome = DUPLICATE;
	PGresult   *begin;

	failed = NULL;
	PQclear(run(connection, "BEGIN", 0, NULL));
	/* The endpoint is an argument and not a SET: a pooler may give the session to others. */
	begin = run(connection, "SELECT outbox_begin($1, endpoint => 'orders')", 1, message);
	if (failed == NULL && PQgetvalue(begin, 0, 0)[0] == 't')
	{
		PQclear(run(connection, "INSERT INTO orders (customer, amount) VALUES ($1, $2::integer)", 2, message + 1));
		PQclear(run(connection, "SELECT outbox_enqueue('order-events',"
					" jsonb_build_object('customer', $1::text, 'amount', $2::integer), '{\"type\": \"OrderPlaced\"}')", 2, message + 1));
		PQclear(run(connection, "SELECT outbox_commit()", 0, NULL));
		outcome = PROCESSED;
	}
	if (begin != failed)
		PQclear(begin);
	PQclear(run(connection, "COMMIT", 0, NULL));
	if (failed)
	{
		outcome = after_error(failed, clashed);
		PQclear(failed);
		PQclear(PQexec(connection, "ROLLBACK"));
	}
	return outcome;
}

/* Runs a statement unless one has failed before; returns its result, NULL after an error. */
static PGresult *
run(PGconn *connection, const char *sql, int nparams, const char *const *params)
{
	PGresult   *result;
	ExecStatusType status;

	if (failed)
		return NULL;
	result = PQexecParams(connection, sql, nparams, NULL, params, NULL, NULL, 0);
	status = PQresultStatus(result);
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		return result;
	/* Without a connection there is no result at all. */
	failed = result ? result : PQmakeEmptyPGresult(connection, PGRES_FATAL_ERROR);
	return NULL;
}

/* Decides what to do after an error. */
static Outcome
after_error(PGresult *result, bool *clashed)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	/* The connection was lost. */
	if (state == NULL || strncmp(state, "08", 2) == 0 || strncmp(state, "57P", 3) == 0)
		return AGAIN;
	/* Another transaction was faster; nothing has happened. */
	if (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0)
		return AGAIN;
	/* Perhaps a copy was processed meanwhile: then the next try is a duplicate. */
	if (strcmp(state, "23505") == 0 && !*clashed)
	{
		*clashed = true;
		return AGAIN;
	}
	/* Poison: to be put where somebody will look at it. */
	if (strncmp(state, "22", 2) == 0 || strncmp(state, "23", 2) == 0)
		return REFUSED;
	fprintf(stderr, "%s", PQresultErrorMessage(result));
	exit(1);
}
