/*
 * store_postgres.c
 *		A PostgreSQL database with this extension that remembers message ids.
 *
 * Called by store.c. libpq does the protocol; the waiting is ours, on our latch
 * and the socket together, so it can be interrupted and has a deadline. Host
 * names are looked up by resolver.c, for libpq would block. The other database
 * keeps the ids among its own records (store_server.c), for as long as its own
 * retention says, and refuses to answer if it is a standby.
 *
 * It keeps what it has acknowledged, so there are no marks.
 */
#include "postgres.h"

#include "libpq-fe.h"

#include "lib/stringinfo.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/redis/resolver.h"
#include "src/settings.h"
#include "src/store/store_kind.h"
#include "src/wait_event.h"

#define UUID_TYPE		2950	/* types of parameters, the same everywhere */
#define UUID_ARRAY_TYPE	2951
#define MAX_OPTIONS		64
#define CHECK_CLIENT_MS	1000	/* how often a session there looks whether we are still there */
#define HEX				"0123456789abcdef"

typedef struct PostgresStore
{
	PGconn	   *conn;
	LinkAttend	attend;
} PostgresStore;

/* Parameters for a connection; in the caller's memory. */
typedef struct Parameters
{
	const char *names[MAX_OPTIONS + 1];
	const char *values[MAX_OPTIONS + 1];
	int			n;
	int			naddresses;		/* that we have found; 0 = libpq is to know */
} Parameters;

static const char *url_problem(const char *url);
static void *open_store(const char *url, LinkAttend attend, StoreFailure *failure);
static void close_store(void *connection);
static void hang_up(PostgresStore *store);
static bool contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool remove_key(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool ask_about(void *connection, const char *query, const pg_uuid_t *key,
					  bool *found, StoreFailure *failure);
static bool add(void *connection, const StoreKey *keys, int n, const StoreMark *mark,
				StoreFailure *failure);
static bool inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure);

/* Not inlined: gcc would warn that their variables do not survive a longjmp. */
static pg_noinline bool read_parameters(const char *url, Parameters *parameters);
static pg_noinline bool find_addresses(Parameters *parameters, TimestampTz deadline, LinkAttend attend, StoreFailure *failure);
static void *open_with(const char *url, bool limits, TimestampTz deadline, LinkAttend attend, StoreFailure *failure);
static void add_limits(Parameters *parameters);
static const char **find_value(Parameters *parameters, const char *name);
static char *next_item(char **list);
static int	count_items(const char *list);
static bool dial_each(PostgresStore *store, Parameters *parameters, TimestampTz deadline, StoreFailure *failure);
static bool dial(PostgresStore *store, const Parameters *parameters, TimestampTz deadline, StoreFailure *failure);
static bool await_connection(PostgresStore *store, TimestampTz deadline, StoreFailure *failure);
static bool ask(PostgresStore *store, const char *query, Oid type, const char *argument,
				char *answer, size_t size, StoreFailure *failure);
static bool send_query(PostgresStore *store, TimestampTz deadline, StoreFailure *failure);
static bool await_result(PostgresStore *store, TimestampTz deadline, StoreFailure *failure);
static bool read_answer(PGresult *result, char *answer, size_t size, StoreFailure *failure);
static void fail_with_result(StoreFailure *failure, const PGresult *result);
static void fail_with_connection(StoreFailure *failure, PGconn *conn);
static void fail_with_text(StoreFailure *failure, int sqlstate, const char *text);
static void put_uuid(StringInfo out, const pg_uuid_t *uuid);
static void ignore_notice(void *arg, const PGresult *notice);

const StoreKind store_postgres = {
	.url_problem = url_problem,
	.connect = open_store,
	.close = close_store,
	.contains = contains,
	.remove = remove_key,
	.add = add,
	.inspect = inspect
};

/* What libpq says of a URL may quote a password, so we say less. */
static const char *
url_problem(const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	const char *path = strchr(strstr(url, "://") + 3, '/');

	if (options == NULL)
		return "It is not a valid URL of a PostgreSQL database.";
	PQconninfoFree(options);

	/* A slash in a password would make the rest of it the name of a database. */
	if (path && memchr(path, '@', strcspn(path, "?")))
		return "In a password \"/\" must be written as \"%2F\", and behind the host \"@\" as \"%40\".";
	return NULL;
}

static void *
open_store(const char *url, LinkAttend attend, StoreFailure *failure)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);
	void	   *store = open_with(url, true, deadline, attend, failure);

	/* A pooler may take no settings; then whoever set it up answers for them. */
	if (store == NULL && strstr(failure->text, "startup parameter"))
		store = open_with(url, false, deadline, attend, failure);
	return store;
}

/* Connects, with or without time limits of the session's own. */
static void *
open_with(const char *url, bool limits, TimestampTz deadline, LinkAttend attend, StoreFailure *failure)
{
	Parameters	parameters = {0};
	PostgresStore *store;
	volatile bool connected = false;

	if (!read_parameters(url, &parameters))
	{
		store_fail(failure, ERRCODE_INVALID_PARAMETER_VALUE, "its URL is invalid");
		return NULL;
	}
	if (limits)
		add_limits(&parameters);
	if (!find_addresses(&parameters, deadline, attend, failure))
		return NULL;

	store = MemoryContextAllocZero(TopMemoryContext, sizeof(PostgresStore));
	store->attend = attend;
	PG_TRY();
	{
		connected = dial_each(store, &parameters, deadline, failure);
	}
	PG_FINALLY();
	{
		if (!connected)
			close_store(store);
	}
	PG_END_TRY();
	return connected ? store : NULL;
}

static void
close_store(void *connection)
{
	hang_up(connection);
	pfree(connection);
}

static void
hang_up(PostgresStore *store)
{
	if (store->conn)
	{
		PQfinish(store->conn);
		ReleaseExternalFD();
	}
	store->conn = NULL;
}

static bool
contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	return ask_about(connection, "SELECT outbox.store_contains($1)", key, found, failure);
}

static bool
remove_key(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	return ask_about(connection, "SELECT outbox.store_remove($1)", key, found, failure);
}

/* Asks what is answered by yes or no; any other answer is a failure. */
static bool
ask_about(void *connection, const char *query, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	StringInfoData argument;
	char		answer[8];

	initStringInfo(&argument);
	put_uuid(&argument, key);
	if (!ask(connection, query, UUID_TYPE, argument.data, answer, sizeof(answer), failure))
		return false;
	*found = strcmp(answer, "t") == 0;
	if (*found || strcmp(answer, "f") == 0)
		return true;
	store_fail(failure, ERRCODE_CONNECTION_FAILURE, "unexpected answer");
	return false;
}

/* One statement, so all are there or none. */
static bool
add(void *connection, const StoreKey *keys, int n, const StoreMark *mark,
	StoreFailure *failure)
{
	StringInfoData argument;
	char		answer[32];

	initStringInfo(&argument);
	appendStringInfoChar(&argument, '{');
	for (int i = 0; i < n; i++)
	{
		if (i > 0)
			appendStringInfoChar(&argument, ',');
		put_uuid(&argument, &keys[i].key);
	}
	appendStringInfoChar(&argument, '}');
	return ask(connection, "SELECT outbox.store_add($1)", UUID_ARRAY_TYPE, argument.data,
			   answer, sizeof(answer), failure);
}

static bool
inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure)
{
	char		answer[32];

	memset(report, 0, sizeof(*report));
	if (!ask(connection, "SELECT outbox.store_retention()", InvalidOid, NULL,
			 answer, sizeof(answer), failure))
		return false;
	report->retention = strtoll(answer, NULL, 10);
	return true;
}

/* Copies the URL's parameters, so that nothing of libpq's is to be freed later. */
static bool
read_parameters(const char *url, Parameters *parameters)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);

	if (options == NULL)
		return false;
	for (PQconninfoOption *option = options; option->keyword && parameters->n < MAX_OPTIONS - 5; option++)
	{
		if (option->val == NULL)
			continue;
		parameters->names[parameters->n] = pstrdup(option->keyword);
		parameters->values[parameters->n++] = pstrdup(option->val);
	}
	PQconninfoFree(options);
	*find_value(parameters, "client_encoding") = "UTF8";
	if (*find_value(parameters, "fallback_application_name") == NULL)
		*find_value(parameters, "fallback_application_name") = "outbox";
	return true;
}

/*
 * A query that we have given up would live on there, waiting for a lock maybe,
 * and the next one beside it: so the session ends it by itself, at the time at
 * which we give up, and notices when we have hung up. What the URL says of the
 * same settings comes later and counts.
 */
static void
add_limits(Parameters *parameters)
{
	const char **options = find_value(parameters, "options");

	*options = psprintf("-c statement_timeout=%d -c client_connection_check_interval=%d %s",
						outbox_command_timeout, CHECK_CLIENT_MS, *options ? *options : "");
}

/* Where a parameter's value is, or is to be put. */
static const char **
find_value(Parameters *parameters, const char *name)
{
	for (int i = 0; i < parameters->n; i++)
	{
		if (strcmp(parameters->names[i], name) == 0)
			return &parameters->values[i];
	}
	parameters->names[parameters->n] = name;
	parameters->values[parameters->n] = NULL;
	return &parameters->values[parameters->n++];
}

/*
 * Puts addresses in the place of names: each name is repeated for each of its
 * addresses, and its port with it. libpq does not look names up that have one.
 * A name that has none is left out if another has, and none gets more than its
 * share of the time, so that some is left to dial.
 */
static bool
find_addresses(Parameters *parameters, TimestampTz deadline, LinkAttend attend, StoreFailure *failure)
{
	const char **hosts = find_value(parameters, "host");
	const char **ports = find_value(parameters, "port");
	const char **found = find_value(parameters, "hostaddr");
	char	   *host_list;
	char	   *port_list;
	char	   *port = "";
	StringInfoData new_hosts;
	StringInfoData new_ports;
	StringInfoData addresses;

	if (*hosts == NULL || *found != NULL)
		return true;
	initStringInfo(&new_hosts);
	initStringInfo(&new_ports);
	initStringInfo(&addresses);
	host_list = pstrdup(*hosts);
	port_list = *ports ? pstrdup(*ports) : NULL;

	for (char *host = next_item(&host_list); host; host = next_item(&host_list))
	{
		Addresses	of_host = {.n = 1};
		const char *problem = NULL;

		/* One port may stand for all. */
		if (port_list)
			port = next_item(&port_list);
		if (host[0] != '\0' && host[0] != '/' && host[0] != '@')
			problem = resolver_find(host, clock_share(deadline, count_items(host_list) + 2), attend, &of_host);
		if (problem)
			store_fail(failure, ERRCODE_CONNECTION_FAILURE, "could not look up the host: %s", problem);
		for (int i = 0; problem == NULL && i < of_host.n; i++)
		{
			const char *separator = parameters->naddresses++ > 0 ? "," : "";

			appendStringInfo(&new_hosts, "%s%s", separator, host);
			appendStringInfo(&new_ports, "%s%s", separator, port);
			appendStringInfo(&addresses, "%s%s", separator, of_host.text[i]);
		}
	}
	*hosts = new_hosts.data;
	*ports = new_ports.data;
	*found = addresses.data;
	return parameters->naddresses > 0;
}

/* Cuts the first item off a list with commas; NULL when nothing is left. */
static char *
next_item(char **list)
{
	char	   *item = *list;
	char	   *comma = item ? strchr(item, ',') : NULL;

	*list = comma ? comma + 1 : NULL;
	if (comma)
		*comma = '\0';
	return item;
}

/* How many items a list with commas has; NULL has none. */
static int
count_items(const char *list)
{
	int			n = 0;

	while (list)
	{
		n++;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return n;
}

/*
 * Dials one address after the other. libpq would do so, too, but not go on
 * from one that keeps silent: each gets its share of the time that is left.
 */
static bool
dial_each(PostgresStore *store, Parameters *parameters, TimestampTz deadline, StoreFailure *failure)
{
	const char **values[] = {
		find_value(parameters, "host"), find_value(parameters, "port"), find_value(parameters, "hostaddr")
	};
	char	   *lists[lengthof(values)];

	if (parameters->naddresses == 0)
		return dial(store, parameters, deadline, failure);
	for (int i = 0; i < lengthof(values); i++)
		lists[i] = (char *) *values[i];
	for (int left = parameters->naddresses; left > 0; left--)
	{
		for (int i = 0; i < lengthof(values); i++)
			*values[i] = next_item(&lists[i]);
		if (dial(store, parameters, clock_share(deadline, left), failure))
			return true;
		hang_up(store);
	}
	return false;
}

static bool
dial(PostgresStore *store, const Parameters *parameters, TimestampTz deadline, StoreFailure *failure)
{
	if (!AcquireExternalFD())
	{
		store_fail(failure, ERRCODE_INSUFFICIENT_RESOURCES, "no file descriptor is free");
		return false;
	}
	store->conn = PQconnectStartParams(parameters->names, parameters->values, 0);
	if (store->conn == NULL)
	{
		ReleaseExternalFD();
		store_fail(failure, ERRCODE_OUT_OF_MEMORY, "out of memory");
		return false;
	}
	PQsetNoticeReceiver(store->conn, ignore_notice, NULL);
	return await_connection(store, deadline, failure);
}

static bool
await_connection(PostgresStore *store, TimestampTz deadline, StoreFailure *failure)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;

	if (PQstatus(store->conn) == CONNECTION_BAD)
		status = PGRES_POLLING_FAILED;
	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		int			events = status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE;

		if (socket_wait(PQsocket(store->conn), events, deadline, store->attend, wait_event_of(OUTBOX_WAIT_STORE)) == 0)
		{
			store_fail(failure, ERRCODE_CONNECTION_FAILURE, "could not connect within %d ms", outbox_connect_timeout);
			return false;
		}
		status = PQconnectPoll(store->conn);
	}
	if (status == PGRES_POLLING_FAILED)
	{
		fail_with_connection(failure, store->conn);
		return false;
	}
	if (PQsetnonblocking(store->conn, 1) != 0)
	{
		fail_with_connection(failure, store->conn);
		return false;
	}
	return true;
}

/* Asks for one value, which is copied into `answer`. */
static bool
ask(PostgresStore *store, const char *query, Oid type, const char *argument,
	char *answer, size_t size, StoreFailure *failure)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_command_timeout);
	bool		answered = true;

	if (!PQsendQueryParams(store->conn, query, argument ? 1 : 0, &type, &argument, NULL, NULL, 0))
	{
		fail_with_connection(failure, store->conn);
		return false;
	}
	if (!send_query(store, deadline, failure))
		return false;
	for (;;)
	{
		PGresult   *result;

		if (!await_result(store, deadline, failure))
			return false;
		result = PQgetResult(store->conn);
		if (result == NULL)
			return answered;
		answered &= read_answer(result, answer, size, failure);
		PQclear(result);
	}
}

static bool
send_query(PostgresStore *store, TimestampTz deadline, StoreFailure *failure)
{
	int			unsent;

	while ((unsent = PQflush(store->conn)) > 0)
	{
		int			ready = socket_wait(PQsocket(store->conn), WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE,
										deadline, store->attend, wait_event_of(OUTBOX_WAIT_STORE));

		if (ready == 0)
		{
			store_fail(failure, ERRCODE_CONNECTION_FAILURE, "it did not answer within %d ms", outbox_command_timeout);
			return false;
		}
		if ((ready & WL_SOCKET_READABLE) && !PQconsumeInput(store->conn))
			break;
	}
	if (unsent == 0)
		return true;
	fail_with_connection(failure, store->conn);
	return false;
}

/* Waits until PQgetResult() will not block. */
static bool
await_result(PostgresStore *store, TimestampTz deadline, StoreFailure *failure)
{
	while (PQisBusy(store->conn))
	{
		if (socket_wait(PQsocket(store->conn), WL_SOCKET_READABLE, deadline, store->attend, wait_event_of(OUTBOX_WAIT_STORE)) == 0)
		{
			store_fail(failure, ERRCODE_CONNECTION_FAILURE, "it did not answer within %d ms", outbox_command_timeout);
			return false;
		}
		if (!PQconsumeInput(store->conn))
		{
			fail_with_connection(failure, store->conn);
			return false;
		}
	}
	return true;
}

static bool
read_answer(PGresult *result, char *answer, size_t size, StoreFailure *failure)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		fail_with_result(failure, result);
		return false;
	}
	if (PQntuples(result) != 1 || PQnfields(result) != 1 || PQgetisnull(result, 0, 0))
	{
		store_fail(failure, ERRCODE_CONNECTION_FAILURE, "unexpected answer");
		return false;
	}
	strlcpy(answer, PQgetvalue(result, 0, 0), size);
	return true;
}

static void
fail_with_result(StoreFailure *failure, const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (state && (strcmp(state, "25006") == 0 || strcmp(state, "55000") == 0))
		store_fail(failure, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "it is a standby or read-only, which may lack what was added last");
	else if (state && (strcmp(state, "42883") == 0 || strcmp(state, "3F000") == 0))
		store_fail(failure, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
				   "the database does not have this extension, or an older version");
	else if (state && strcmp(state, "42501") == 0)
		store_fail(failure, ERRCODE_INSUFFICIENT_PRIVILEGE,
				   "the role may not use it as a store; see outbox_grant(role, 'store')");
	else
		fail_with_text(failure, ERRCODE_CONNECTION_FAILURE, text ? text : PQresultErrorMessage(result));
}

static void
fail_with_connection(StoreFailure *failure, PGconn *conn)
{
	const char *text = PQerrorMessage(conn);
	bool		is_starting = strstr(text, "starting up") || strstr(text, "shutting down") || strstr(text, "too many clients");

	fail_with_text(failure, is_starting ? ERRCODE_CANNOT_CONNECT_NOW : ERRCODE_CONNECTION_FAILURE, text);
}

/* The first line will do. */
static void
fail_with_text(StoreFailure *failure, int sqlstate, const char *text)
{
	store_fail(failure, sqlstate, "%.*s", (int) strcspn(text, "\n"), text);
}

static void
put_uuid(StringInfo out, const pg_uuid_t *uuid)
{
	for (int i = 0; i < UUID_LEN; i++)
	{
		appendStringInfoChar(out, HEX[uuid->data[i] >> 4]);
		appendStringInfoChar(out, HEX[uuid->data[i] & 15]);
	}
}

static void
ignore_notice(void *arg, const PGresult *notice)
{
}
