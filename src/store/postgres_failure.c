/*
 * postgres_failure.c
 *		Why a PostgreSQL store could not be used, from what libpq knows of it.
 *
 * Called by postgres_link.c. It must add nothing that libpq does not say: a text of
 * libpq has no password.
 */
#include "postgres.h"

#include "libpq-fe.h"

#include "src/store/postgres_failure.h"

#define SQLSTATE_BYTES	7		/* in a message, with ": " after it */

static const char *find_sqlstate(const char *text);
static void copy_text(StoreFailure *failure, int sqlstate, const char *text);

/* Notes why a query failed. For some SQLSTATEs the text says what to do; other errors are quoted. */
void
postgres_failure_of_result(StoreFailure *failure, const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (state && (strcmp(state, "25006") == 0 || strcmp(state, "55000") == 0))
		store_failure_set(failure, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						  "it is a standby or read-only, which might lack what was added last");
	else if (state && (strcmp(state, "42883") == 0 || strcmp(state, "3F000") == 0))
		store_failure_set(failure, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						  "the database does not have this extension, or has an older version");
	else if (state && strcmp(state, "42501") == 0)
		store_failure_set(failure, ERRCODE_INSUFFICIENT_PRIVILEGE,
						  "permission denied to use it as a store; see outbox_grant(role, 'store')");
	else
		copy_text(failure, ERRCODE_CONNECTION_FAILURE, text ? text : PQresultErrorMessage(result));
}

/*
 * Notes why a connection failed. A server that is starting, ending or full, or a
 * database that is closed, can be asked again later; its SQLSTATE is not shown.
 */
void
postgres_failure_of_connection(StoreFailure *failure, PGconn *conn)
{
	const char *text = PQerrorMessage(conn);
	const char *state = find_sqlstate(text);
	bool		is_refused;

	if (state == NULL)
	{
		copy_text(failure, ERRCODE_CONNECTION_FAILURE, text);
		return;
	}
	is_refused = strncmp(state, "57P", 3) == 0 || strncmp(state, "53300", 5) == 0 || strncmp(state, "55000", 5) == 0;
	store_failure_set(failure, is_refused ? ERRCODE_CANNOT_CONNECT_NOW : ERRCODE_CONNECTION_FAILURE, "%.*s%.*s",
					  (int) (state - text), text, (int) strcspn(state, "\n") - SQLSTATE_BYTES, state + SQLSTATE_BYTES);
}

/* Returns where the first line of a verbose message of libpq has a SQLSTATE, as in "FATAL:  57P03: text"; or NULL. */
static const char *
find_sqlstate(const char *text)
{
	size_t		length = strcspn(text, "\n");

	for (const char *at = strstr(text, ":  "); at && at + 3 + SQLSTATE_BYTES <= text + length; at = strstr(at + 1, ":  "))
	{
		if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && strncmp(at + 8, ": ", 2) == 0)
			return at + 3;
	}
	return NULL;
}

/* Notes the first line of a text of libpq. */
static void
copy_text(StoreFailure *failure, int sqlstate, const char *text)
{
	store_failure_set(failure, sqlstate, "%.*s", (int) strcspn(text, "\n"), text);
}
