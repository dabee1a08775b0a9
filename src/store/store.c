/*
 * store.c
 *		Looks message ids up in deduplication stores, and adds them there.
 *
 * An endpoint may name a store outside this database that remembers the ids of
 * its messages. Sessions look ids up in it (claim.c), the dispatcher adds them
 * (bgworker/propagate/store_propagation.c). store_redis.c and store_postgres.c
 * implement the kinds of stores; this file manages the connections. Each
 * process keeps one for each of the stores that it used last. A connection that
 * is broken, or on which an error interrupted a task, is closed when it is
 * needed next.
 *
 * A store that cannot be reached is an error, never "not found". URLs are shown
 * only by masked_url(), because they may contain a password.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/limits.h"
#include "src/settings.h"
#include "src/store/masked_url.h"
#include "src/store/store_kind.h"

#define MAX_CONNECTIONS	4

typedef struct Connection
{
	char	   *url;			/* NULL = free */
	const StoreKind *kind;
	void	   *opened;			/* NULL = not connected */
	bool		busy;			/* a task was begun and not ended */
	TimestampTz used;
} Connection;

/* What to do with a connection. */
typedef struct Task
{
	const StoreKey *keys;		/* to add, or NULL */
	int			n;
	const StoreComparison *comparison;
	const pg_uuid_t *key;		/* to look for, or to remove, or NULL */
	bool		remove;
	bool		found;
	StoreReport *report;		/* to fill, or NULL */
	const char *client;
} Task;

static const StoreKind *const kinds[] = {&store_redis, &store_postgres};
static Connection connections[MAX_CONNECTIONS];
static LinkAttend attend_with;

static const StoreKind *kind_of(const char *url);
static bool perform_task(const char *url, Task *task, StoreFailure *failure);
static Connection *find_connection(const char *url);
static bool open_connection(Connection *connection, StoreFailure *failure);
static bool run_task(Connection *connection, Task *task, StoreFailure *failure);
static void close_connection(Connection *connection);
static bool try_twice(Connection *connection, Task *task, StoreFailure *failure);
static void attend_to_caller(void);

PG_FUNCTION_INFO_V1(outbox_check_store);

/* Returns what is wrong with the URL of a store; NULL if it is valid. */
const char *
store_url_problem(const char *url)
{
	const StoreKind *kind = kind_of(url);

	if (kind == NULL)
		return "The scheme must be \"redis://\", \"rediss://\", \"redis+sentinel://\", \"rediss+sentinel://\", \"redis+cluster://\", \"rediss+cluster://\", \"unix://\" or \"postgresql://\".";
	if (strlen(url) > MAX_URL_BYTES)
		return "The URL is too long.";
	return kind->url_problem(url);
}

/*
 * Sets a function that is called while waiting for a store, except within
 * transactions; for the dispatcher.
 */
void
store_attend_with(LinkAttend attend)
{
	attend_with = attend;
}

/*
 * Check whether a store has an id. Raises 08006, 57P03 or 55000 if that cannot be
 * found out. Can be interrupted, and waits no longer than outbox.connect_timeout
 * and outbox.command_timeout.
 */
bool
store_contains(const char *url, const pg_uuid_t *key)
{
	Task		task = {.key = key};
	StoreFailure failure;

	if (!perform_task(url, &task, &failure))
		ereport(ERROR,
				(errcode(failure.sqlstate),
				 errmsg("could not look up the message in the deduplication store: %s", failure.text),
				 errdetail("The store is \"%s\".", masked_url(url)),
				 errhint("Roll back and retry when the store can be reached; until then it is unknown whether the message has been processed.")));
	return task.found;
}

/*
 * Removes an id from a store; returns false if it was not there. It is removed
 * at once, because a store takes part in no transaction. Raises the same errors
 * as store_contains().
 */
bool
store_remove(const char *url, const pg_uuid_t *key)
{
	Task		task = {.key = key, .remove = true};
	StoreFailure failure;

	if (!perform_task(url, &task, &failure))
		ereport(ERROR,
				(errcode(failure.sqlstate),
				 errmsg("could not remove an id from the deduplication store: %s", failure.text),
				 errdetail("The store is \"%s\".", masked_url(url)),
				 errhint("Try again when the store can be reached.")));
	return task.found;
}

/*
 * Adds ids, if the store has the expected watermarks, and writes the next ones.
 * All or some may have been added when this returns false; adding them again is
 * harmless. Needs no transaction.
 */
bool
store_add(const char *url, const StoreKey *keys, int n, const StoreComparison *comparison,
		  StoreFailure *failure)
{
	Task		task = {.keys = keys, .n = n, .comparison = comparison};

	return perform_task(url, &task, failure);
}

/* Asks a store about itself, and for the watermarks of `client`. */
bool
store_inspect(const char *url, const char *client, StoreReport *report, StoreFailure *failure)
{
	Task		task = {.client = client, .report = report};

	return perform_task(url, &task, failure);
}

/* Check whether two URLs of stores are the same but for passwords. */
bool
store_differs_in_password(const char *one, const char *other)
{
	const StoreKind *kind = kind_of(one);

	return kind && kind == kind_of(other) && kind->differs_in_password(one, other);
}

/* Closes the connection to a store: the next one is a session with its newest settings. */
void
store_close(const char *url)
{
	for (int i = 0; i < MAX_CONNECTIONS; i++)
	{
		if (connections[i].url && strcmp(connections[i].url, url) == 0)
			close_connection(&connections[i]);
	}
}

/* Raises an error if that is not the URL of a store, or the caller is not allowed to name one. */
void
store_check(const char *url)
{
	const char *problem = store_url_problem(url);

	store_check_privilege();
	if (problem)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid URL for a deduplication store"),
				 errdetail("%s", problem)));
}

/*
 * Raises an error if the caller is not allowed to name a store. Naming one makes
 * our server connect to it, with the privileges of the operating system user that it
 * runs as. So both the current user and the caller must be superusers.
 */
void
store_check_privilege(void)
{
	if (!superuser() || !superuser_arg(GetOuterUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to name a deduplication store")));
}

/* outbox.check_store(url) */
Datum
outbox_check_store(PG_FUNCTION_ARGS)
{
	/* STRICT is up to the owner of the function. */
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	store_check(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

/* Returns the kind of store that a URL names; NULL if there is none. */
static const StoreKind *
kind_of(const char *url)
{
	for (int i = 0; i < lengthof(kinds); i++)
	{
		if (kinds[i]->has_scheme(url))
			return kinds[i];
	}
	return NULL;
}

/* Performs a task; its memory is freed by the next one. */
static bool
perform_task(const char *url, Task *task, StoreFailure *failure)
{
	static MemoryContext context;
	Connection *connection = find_connection(url);
	MemoryContext caller;
	bool		done;

	if (connection == NULL)
	{
		store_failure_set(failure, ERRCODE_INVALID_PARAMETER_VALUE, "its URL is invalid");
		return false;
	}
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox store", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(context);
	caller = MemoryContextSwitchTo(context);
	done = try_twice(connection, task, failure);
	MemoryContextSwitchTo(caller);
	return done;
}

/*
 * Runs a task. If a kept connection has died meanwhile, runs it again on a new
 * one, because all tasks may be repeated; but not after a timeout, which would
 * double the time.
 */
static bool
try_twice(Connection *connection, Task *task, StoreFailure *failure)
{
	TimestampTz begun = clock_now();
	bool		kept;

	connection->used = begun;
	if (connection->busy)
		close_connection(connection);
	kept = connection->opened != NULL;
	if (!kept && !open_connection(connection, failure))
		return false;
	if (run_task(connection, task, failure))
		return true;
	if (!kept || TimestampDifferenceExceeds(begun, clock_now(), outbox_command_timeout))
		return false;
	return open_connection(connection, failure) && run_task(connection, task, failure);
}

/* Returns the connection for a URL, open or not; NULL if the URL is invalid. */
static Connection *
find_connection(const char *url)
{
	Connection *found = &connections[0];

	for (int i = 0; i < MAX_CONNECTIONS; i++)
	{
		if (connections[i].url && strcmp(connections[i].url, url) == 0)
			return &connections[i];
		if (connections[i].used < found->used)
			found = &connections[i];
	}
	if (store_url_problem(url) != NULL)
		return NULL;

	close_connection(found);
	if (found->url)
		pfree(found->url);
	found->url = NULL;
	found->url = MemoryContextStrdup(TopMemoryContext, url);
	found->kind = kind_of(url);
	return found;
}

/* Connects to a store. Returns false, with the reason, if that fails. */
static bool
open_connection(Connection *connection, StoreFailure *failure)
{
	connection->opened = connection->kind->connect(connection->url, attend_to_caller, failure);
	return connection->opened != NULL;
}

/* Runs a task on a connection. After an ERROR `busy` stays set. */
static bool
run_task(Connection *connection, Task *task, StoreFailure *failure)
{
	const StoreKind *kind = connection->kind;
	bool		done;

	connection->busy = true;
	if (task->key && task->remove)
		done = kind->remove(connection->opened, task->key, &task->found, failure);
	else if (task->key)
		done = kind->contains(connection->opened, task->key, &task->found, failure);
	else if (task->report)
		done = kind->inspect(connection->opened, task->client, task->report, failure);
	else
		done = kind->add(connection->opened, task->keys, task->n, task->comparison, failure);
	connection->busy = false;
	if (!done)
		close_connection(connection);
	return done;
}

/* Closes a connection, and clears `busy`. */
static void
close_connection(Connection *connection)
{
	if (connection->opened)
		connection->kind->close(connection->opened);
	connection->opened = NULL;
	connection->busy = false;
}

/*
 * Calls the function of store_attend_with(), but not within a transaction,
 * because it has transactions of its own.
 */
static void
attend_to_caller(void)
{
	MemoryContext caller = CurrentMemoryContext;

	if (attend_with && !IsTransactionOrTransactionBlock())
		attend_with();
	CHECK_FOR_INTERRUPTS();
	MemoryContextSwitchTo(caller);
}
