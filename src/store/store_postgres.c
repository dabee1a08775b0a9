/*
 * store_postgres.c
 *		A PostgreSQL database with this extension that remembers message ids.
 *
 * Called by store.c. The connection is postgres_link.c's. The other database
 * keeps the ids among its own records (store_server.c), for as long as its own
 * retention says, and refuses to answer if it is a standby.
 *
 * It keeps what it has acknowledged, so it needs no watermark.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/uuid.h"

#include "src/store/postgres_link.h"
#include "src/store/postgres_url.h"
#include "src/store/store_kind.h"

#define UUID_TYPE		2950	/* types of parameters, the same everywhere */
#define UUID_ARRAY_TYPE	2951
#define HEX				"0123456789abcdef"

static void *postgres_store_open(const char *url, LinkAttend attend, StoreFailure *failure);
static void postgres_store_close(void *connection);
static bool postgres_store_contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool postgres_store_remove(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool ask_about_key(void *connection, const char *query, const pg_uuid_t *key,
						  bool *found, StoreFailure *failure);
static bool postgres_store_add(void *connection, const StoreKey *keys, int n, const StoreComparison *comparison,
							   StoreFailure *failure);
static bool postgres_store_inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure);

static void put_uuid(StringInfo out, const pg_uuid_t *uuid);

const StoreKind store_postgres = {
	.has_scheme = postgres_url_has_scheme,
	.url_problem = postgres_url_problem,
	.differs_in_password = postgres_url_differs_in_password,
	.connect = postgres_store_open,
	.close = postgres_store_close,
	.contains = postgres_store_contains,
	.remove = postgres_store_remove,
	.add = postgres_store_add,
	.inspect = postgres_store_inspect
};

/* The functions of a StoreKind: each does what store_kind.h says. */
static void *
postgres_store_open(const char *url, LinkAttend attend, StoreFailure *failure)
{
	return postgres_link_open(url, attend, failure);
}

static void
postgres_store_close(void *connection)
{
	postgres_link_close(connection);
}

static bool
postgres_store_contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	return ask_about_key(connection, "SELECT outbox.store_contains($1)", key, found, failure);
}

static bool
postgres_store_remove(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	return ask_about_key(connection, "SELECT outbox.store_remove($1)", key, found, failure);
}

/* Sends a query about an id that returns a boolean; any other answer is a failure. */
static bool
ask_about_key(void *connection, const char *query, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	StringInfoData argument;
	char		answer[8];

	initStringInfo(&argument);
	put_uuid(&argument, key);
	if (!postgres_link_ask(connection, query, UUID_TYPE, argument.data, answer, sizeof(answer), failure))
		return false;
	*found = strcmp(answer, "t") == 0;
	if (*found || strcmp(answer, "f") == 0)
		return true;
	store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "unexpected answer");
	return false;
}

/* Adds ids by one statement, so all are there or none. */
static bool
postgres_store_add(void *connection, const StoreKey *keys, int n, const StoreComparison *comparison,
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
	return postgres_link_ask(connection, "SELECT outbox.store_add($1)", UUID_ARRAY_TYPE, argument.data,
							 answer, sizeof(answer), failure);
}

static bool
postgres_store_inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure)
{
	char		answer[32];

	memset(report, 0, sizeof(*report));
	if (!postgres_link_ask(connection, "SELECT outbox.store_retention()", InvalidOid, NULL,
						   answer, sizeof(answer), failure))
		return false;
	report->retention = strtoll(answer, NULL, 10);
	return true;
}

/* Writes a UUID without hyphens, which PostgreSQL accepts. */
static void
put_uuid(StringInfo out, const pg_uuid_t *uuid)
{
	for (int i = 0; i < UUID_LEN; i++)
	{
		appendStringInfoChar(out, HEX[uuid->data[i] >> 4]);
		appendStringInfoChar(out, HEX[uuid->data[i] & 15]);
	}
}
