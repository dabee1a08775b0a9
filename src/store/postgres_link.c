/*
 * postgres_link.c
 *		One interruptible, deadline-bound connection to another PostgreSQL.
 *
 * Called by store_postgres.c. libpq handles the protocol; waiting is done here,
 * by socket_wait.c, so it can be interrupted and has a deadline. A failure is a result
 * here, never an ERROR; where libpq finds out what went wrong, it is to say so in English.
 * A link that failed can only be closed.
 *
 * The other side is not trusted. libpq keeps whatever it is sent, also what belongs to no
 * answer, so a link ends when it has received more than very many answers have. (One
 * message that says to be large libpq reads at once, for as long as bytes come.) And a
 * result of another kind than we expect ends the link, because libpq may return one
 * forever (COPY).
 */
#include "postgres.h"

#include <sys/ioctl.h>
#ifdef USE_OPENSSL
#include <openssl/ssl.h>
#endif

#include "libpq-fe.h"

#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/settings.h"
#include "src/store/postgres_failure.h"
#include "src/store/postgres_link.h"
#include "src/store/postgres_url.h"
#include "src/wait_event.h"

#define MAX_BYTES		(16 * 1024 * 1024)	/* of a connection, which store.c
											 * then opens again; an answer
											 * that we expect has some hundred */

struct PostgresLink
{
	PGconn	   *conn;
	LinkAttend	attend;
	int64		received;		/* bytes, in all: libpq keeps some of what it
								 * was not asked for; some may be counted
								 * twice */
	bool		standby_may_lack;	/* what was committed there */
};

static PostgresLink *open_with(const char *url, bool limits, TimestampTz deadline, LinkAttend attend, StoreFailure *failure);
static void hang_up(PostgresLink *link);
static bool dial_each(PostgresLink *link, PostgresUrl *parameters, TimestampTz deadline, StoreFailure *failure);
static bool dial_address(PostgresLink *link, const PostgresUrl *parameters, TimestampTz deadline, StoreFailure *failure);
static bool await_connection(PostgresLink *link, TimestampTz deadline, StoreFailure *failure);
static bool bound_input(PostgresLink *link, StoreFailure *failure);
static PostgresPollingStatusType poll_connection(PGconn *conn);
static bool check_end(const PostgresLink *link, bool answered, StoreFailure *failure);
static bool send_query(PostgresLink *link, TimestampTz deadline, StoreFailure *failure);
static int	flush_output(PGconn *conn);
static bool await_result(PostgresLink *link, TimestampTz deadline, StoreFailure *failure);
static bool consume_input(PGconn *conn);
static bool read_result(PGresult *result, char *answer, size_t size, bool *answered, StoreFailure *failure);
static void note_notice(void *arg, const PGresult *notice);

/*
 * Connects. Returns NULL, with the reason, if that fails or takes longer than
 * outbox.connect_timeout.
 */
PostgresLink *
postgres_link_open(const char *url, LinkAttend attend, StoreFailure *failure)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);
	PostgresLink *link = open_with(url, true, deadline, attend, failure);

	/*
	 * A pooler may refuse settings; then time limits are left to its
	 * configuration.
	 */
	if (link == NULL && strstr(failure->text, "startup parameter"))
		link = open_with(url, false, deadline, attend, failure);
	return link;
}

/* Connects, with or without setting time limits in the session. */
static PostgresLink *
open_with(const char *url, bool limits, TimestampTz deadline, LinkAttend attend, StoreFailure *failure)
{
	PostgresUrl parameters = {0};
	PostgresLink *link;
	volatile bool connected = false;

	if (!postgres_url_parse(url, &parameters))
	{
		store_failure_set(failure, ERRCODE_INVALID_PARAMETER_VALUE, "its URL is invalid");
		return NULL;
	}
	if (limits)
		postgres_url_limit(&parameters);
	if (!postgres_url_resolve(&parameters, deadline, attend, failure))
		return NULL;

	link = MemoryContextAllocZero(TopMemoryContext, sizeof(PostgresLink));
	link->attend = attend;
	PG_TRY();
	{
		connected = dial_each(link, &parameters, deadline, failure);
	}
	PG_FINALLY();
	{
		if (!connected)
			postgres_link_close(link);
	}
	PG_END_TRY();
	return connected ? link : NULL;
}

/* Closes and frees a connection. */
void
postgres_link_close(PostgresLink *link)
{
	hang_up(link);
	pfree(link);
}

/* Closes the socket, even in the middle of connecting. */
static void
hang_up(PostgresLink *link)
{
	if (link->conn)
	{
		PQfinish(link->conn);
		ReleaseExternalFD();
	}
	link->conn = NULL;
}

/*
 * Tries one address after the other. libpq would do so, too, but would not go
 * on from one that does not answer: each gets its share of the remaining time.
 */
static bool
dial_each(PostgresLink *link, PostgresUrl *parameters, TimestampTz deadline, StoreFailure *failure)
{
	if (parameters->naddresses == 0)
		return dial_address(link, parameters, deadline, failure);
	for (int left = parameters->naddresses; left > 0; left--)
	{
		postgres_url_next_address(parameters);
		if (dial_address(link, parameters, clock_share(deadline, left), failure))
			return true;
		hang_up(link);
	}
	return false;
}

/* Connects to the address that the parameters name, or to all hosts if there is none. */
static bool
dial_address(PostgresLink *link, const PostgresUrl *parameters, TimestampTz deadline, StoreFailure *failure)
{
	locale_t	before;

	if (!AcquireExternalFD())
	{
		store_failure_set(failure, ERRCODE_INSUFFICIENT_RESOURCES, "no file descriptor is free");
		return false;
	}
	before = foreign_text_english_begin();
	link->conn = PQconnectStartParams(parameters->names, parameters->values, 0);
	foreign_text_english_end(before);
	if (link->conn == NULL)
	{
		ReleaseExternalFD();
		store_failure_set(failure, ERRCODE_OUT_OF_MEMORY, "out of memory");
		return false;
	}
	PQsetNoticeReceiver(link->conn, note_notice, link);

	/*
	 * Only a verbose message tells the SQLSTATE of a connection that is
	 * refused.
	 */
	(void) PQsetErrorVerbosity(link->conn, PQERRORS_VERBOSE);
	return await_connection(link, deadline, failure);
}

/* Waits until a connection is established. Returns false, with the reason, if that fails. */
static bool
await_connection(PostgresLink *link, TimestampTz deadline, StoreFailure *failure)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	if (PQstatus(link->conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		int			events = status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE;

		if (socket_wait(PQsocket(link->conn), events, deadline, link->attend, wait_event_of(OUTBOX_WAIT_STORE)) == 0)
		{
			store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "could not connect within %d ms", outbox_connect_timeout);
			return false;
		}
		if (!bound_input(link, failure))
			return false;
		status = poll_connection(link->conn);
	}
	if (status == PGRES_POLLING_FAILED || PQsetnonblocking(link->conn, 1) != 0)
	{
		postgres_failure_of_connection(failure, link->conn);
		return false;
	}
	return true;
}

/* Counts what libpq is about to read. Returns false, with the reason, if that is too much for one connection. */
static bool
bound_input(PostgresLink *link, StoreFailure *failure)
{
	int			waiting = 0;

	if (ioctl(PQsocket(link->conn), FIONREAD, &waiting) == 0)
		link->received += waiting;
	if (link->received <= MAX_BYTES)
		return true;
	store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "its reply is too large");
	return false;
}

/* Takes the next step of connecting. */
static PostgresPollingStatusType
poll_connection(PGconn *conn)
{
	locale_t	before = foreign_text_english_begin();
	PostgresPollingStatusType status = PQconnectPoll(conn);

#ifdef USE_OPENSSL
	/* As in tls.c. */
	if (PQgetssl(conn))
		SSL_clear_mode((SSL *) PQgetssl(conn), SSL_MODE_AUTO_RETRY);
#endif
	foreign_text_english_end(before);
	return status;
}

/*
 * Asks for one value, which is copied into `answer`. Returns false, with the
 * reason, if there is none.
 */
bool
postgres_link_ask(PostgresLink *link, const char *query, Oid type, const char *argument,
				  char *answer, size_t size, StoreFailure *failure)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_command_timeout);
	bool		answered = false;

	if (!PQsendQueryParams(link->conn, query, argument ? 1 : 0, &type, &argument, NULL, NULL, 0) ||
		!PQsetSingleRowMode(link->conn))
	{
		postgres_failure_of_connection(failure, link->conn);
		return false;
	}
	if (!send_query(link, deadline, failure))
		return false;
	for (;;)
	{
		PGresult   *result;
		bool		is_read;

		if (!await_result(link, deadline, failure))
			return false;
		result = PQgetResult(link->conn);
		if (result == NULL)
			return check_end(link, answered, failure);
		is_read = read_result(result, answer, size, &answered, failure);
		PQclear(result);
		if (!is_read)
			return false;
	}
}

/* Checks, when all of an answer was read, that it counts. Returns false, with the reason, if it does not. */
static bool
check_end(const PostgresLink *link, bool answered, StoreFailure *failure)
{
	if (answered && !link->standby_may_lack)
		return true;
	store_failure_set(failure, ERRCODE_CONNECTION_FAILURE,
					  answered ? "the wait for its synchronous standby was cancelled" : "unexpected answer");
	return false;
}

/* Sends a query. Reads meanwhile, because the other side may wait for that before it reads more. */
static bool
send_query(PostgresLink *link, TimestampTz deadline, StoreFailure *failure)
{
	int			unsent;

	while ((unsent = flush_output(link->conn)) > 0)
	{
		int			ready = socket_wait(PQsocket(link->conn), WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE,
										deadline, link->attend, wait_event_of(OUTBOX_WAIT_STORE));

		if (ready == 0)
		{
			store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "it did not answer within %d ms", outbox_command_timeout);
			return false;
		}
		if ((ready & WL_SOCKET_READABLE) && !bound_input(link, failure))
			return false;
		if ((ready & WL_SOCKET_READABLE) && !consume_input(link->conn))
			break;
	}
	if (unsent == 0)
		return true;
	postgres_failure_of_connection(failure, link->conn);
	return false;
}

/* Sends what can be sent without waiting: PQflush(). */
static int
flush_output(PGconn *conn)
{
	locale_t	before = foreign_text_english_begin();
	int			unsent = PQflush(conn);

	foreign_text_english_end(before);
	return unsent;
}

/* Waits until PQgetResult() will not block. */
static bool
await_result(PostgresLink *link, TimestampTz deadline, StoreFailure *failure)
{
	while (PQisBusy(link->conn))
	{
		if (socket_wait(PQsocket(link->conn), WL_SOCKET_READABLE, deadline, link->attend, wait_event_of(OUTBOX_WAIT_STORE)) == 0)
		{
			store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "it did not answer within %d ms", outbox_command_timeout);
			return false;
		}
		if (!bound_input(link, failure))
			return false;
		if (!consume_input(link->conn))
		{
			postgres_failure_of_connection(failure, link->conn);
			return false;
		}
	}
	return true;
}

/* Reads what has arrived: PQconsumeInput(). */
static bool
consume_input(PGconn *conn)
{
	locale_t	before = foreign_text_english_begin();
	bool		is_read = PQconsumeInput(conn) != 0;

	foreign_text_english_end(before);
	return is_read;
}

/*
 * Reads a result: the only row, with its one value, or the end of all rows. Returns false,
 * with the reason, if it is anything else.
 */
static bool
read_result(PGresult *result, char *answer, size_t size, bool *answered, StoreFailure *failure)
{
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_TUPLES_OK && *answered)
		return true;
	if (status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE)
	{
		postgres_failure_of_result(failure, result);
		return false;
	}
	if (status != PGRES_SINGLE_TUPLE || *answered || PQnfields(result) != 1 || PQgetisnull(result, 0, 0))
	{
		store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "unexpected answer");
		return false;
	}
	strlcpy(answer, PQgetvalue(result, 0, 0), size);
	*answered = true;
	return true;
}

/*
 * A PQnoticeReceiver; libpq would print notices to stderr. A commit whose wait for the standby is
 * cancelled succeeds, with a warning.
 */
static void
note_notice(void *arg, const PGresult *notice)
{
	const char *function = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);

	if (function && strcmp(function, "SyncRepWaitForLSN") == 0)
		((PostgresLink *) arg)->standby_may_lack = true;
}
