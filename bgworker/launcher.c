/*
 * launcher.c
 *		Keeps one dispatcher alive in each database that has the extension.
 *
 * A static worker that is connected to no database. It cannot see from outside
 * which databases have the extension, so it starts a dispatcher once in each to
 * find out; one that does not find the extension exits and is not restarted. After that the
 * launcher is woken: by a commit for which there was no dispatcher (such as
 * that of CREATE EXTENSION), and by commands that create or alter databases.
 * Nothing is polled.
 *
 * It has no state that matters: after a restart it finds running dispatchers in
 * shared memory.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "bgworker/process/process.h"
#include "src/clock.h"
#include "src/compat.h"
#include "src/outbox.h"
#include "src/problem.h"
#include "src/ring/filter.h"
#include "src/shared.h"
#include "src/wait_event.h"

#define MAX_STARTING		2	/* dispatchers that may start at the same time */
#define IDLE_MS				60000
#define PAUSE_MS			10	/* between two looks: where no dispatcher can
								 * run, each commit wakes the launcher */
#define HANGING_MS			5000	/* after that one that is starting does
									 * not count */
#define STARTING_MS			100 /* until we check again whether it is still
								 * starting */
#define LOCKED_MS			100 /* until the lock on a database is tried again */
#define NO_SLOT_MS			1000	/* until a worker slot may be free again */
#define FIRST_BACKOFF_MS	1000
#define LAST_BACKOFF_MS		60000
#define HEALTHY_MS			60000	/* one that ran this long did not fail at
									 * once */

PGDLLEXPORT void outbox_launcher_main(Datum argument);

/* What is known of the dispatcher of shared_at(i). */
typedef struct Child
{
	Oid			database;
	BackgroundWorkerHandle *handle; /* NULL = not started by this process, or
									 * ended */
	TimestampTz started;
	TimestampTz not_before;		/* no dispatcher is started before */
	int			backoff_ms;
} Child;

static Child *children;
static int	starting;			/* how many are starting now */
static bool no_slot;			/* there is none, and the log says so */
static bool no_entry;			/* for some database, and the log says so */

static void set_up_launcher(void);
static void adopt_dispatchers(void);
static void forget_launcher(int code, Datum argument);
static void read_databases(void);
static bool note_database(Form_pg_database database);
static void report_entries(bool lacks_some);
static void forget_dropped(void);
static long look_after(int i);
static void handle_end(Child *child, DatabaseShared *shared);
static long start_if_due(Child *child, DatabaseShared *shared);
static long ms_until_free(Oid database);
static bool allows_connections(Oid database);
static bool row_allows_connections(Form_pg_database database);
static bool start_dispatcher(Child *child);

/* Entry point. */
void
outbox_launcher_main(Datum argument)
{
	set_up_launcher();

	for (;;)
	{
		long		ms = IDLE_MS;
		uint32		calls = shared_launcher_calls();

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		(void) process_reload_settings();

		read_databases();
		starting = 0;
		for (int i = 0; i < shared_capacity(); i++)
			ms = Min(ms, look_after(i));

		if (shared_launcher_calls() == calls)
			process_sleep(ms, OUTBOX_WAIT_LAUNCHER);
		process_pause(PAUSE_MS, OUTBOX_WAIT_LAUNCHER);
	}
}

/* Connects to no database, and makes the launcher visible in shared memory. */
static void
set_up_launcher(void)
{
	process_begin();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	children = MemoryContextAllocZero(TopMemoryContext, shared_capacity() * sizeof(Child));
	before_shmem_exit(forget_launcher, (Datum) 0);
	shared_set_launcher(true);
	adopt_dispatchers();
}

/*
 * Dispatchers that our predecessor has started are not our children, so we are
 * not told why they end. Another one is started whenever they do.
 */
static void
adopt_dispatchers(void)
{
	for (int i = 0; i < shared_capacity(); i++)
		pg_atomic_write_u32(&shared_at(i)->wanted, 1);
}

/* Called when the process exits. */
static void
forget_launcher(int code, Datum argument)
{
	shared_set_launcher(false);
}

/* Makes an entry for each new database, so that a dispatcher is started in it to look. */
static void
read_databases(void)
{
	Relation	table;
	TableScanDesc scan;
	HeapTuple	row;
	bool		lacks_some = false;

	StartTransactionCommand();
	forget_dropped();
	(void) GetTransactionSnapshot();
	table = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(table, 0, NULL);
	while ((row = heap_getnext(scan, ForwardScanDirection)) != NULL)
		lacks_some |= !note_database((Form_pg_database) GETSTRUCT(row));
	table_endscan(scan);
	table_close(table, AccessShareLock);
	CommitTransactionCommand();
	report_entries(lacks_some);
}

/* Makes an entry for a database, unless it has one or needs none. Returns false if none is free. */
static bool
note_database(Form_pg_database database)
{
	return !row_allows_connections(database) || shared_find(database->oid, false) != NULL ||
		shared_find(database->oid, true) != NULL;
}

/* Reports once that some databases have no entry, and so no dispatcher. */
static void
report_entries(bool lacks_some)
{
	if (lacks_some && !no_entry)
		ereport(LOG,
				(errmsg("outbox: too many databases"),
				 errdetail("The maximum number of databases is %d.  Nothing is sent in the others.", shared_capacity())));
	no_entry = lacks_some;
}

/* Frees the entries of databases that are gone. Needs an open transaction. */
static void
forget_dropped(void)
{
	for (int i = 0; i < shared_capacity(); i++)
	{
		DatabaseShared *shared = shared_at(i);

		if (OidIsValid(shared->database) && children[i].handle == NULL &&
			pg_atomic_read_u32(&shared->dispatcher) == 0 &&
			get_database_name(shared->database) == NULL)
		{
			filters_forget_all(shared);
			shared_forget(shared);
		}
	}
}

/* Does what is due for one database; returns in how many ms to look again. */
static long
look_after(int i)
{
	DatabaseShared *shared = shared_at(i);
	Child	   *child = &children[i];
	pid_t		pid;

	if (child->handle && GetBackgroundWorkerPid(child->handle, &pid) == BGWH_STOPPED)
		handle_end(child, shared);
	if (!OidIsValid(shared->database))
		return IDLE_MS;
	if (child->database != shared->database)
		*child = (Child) {.database = shared->database};

	if (child->handle || pg_atomic_read_u32(&shared->dispatcher) != 0)
	{
		if (shared->report.state > DISPATCHER_STARTING)
			return IDLE_MS;

		/*
		 * One that hangs (for instance waiting for a lock) must not keep
		 * others waiting.
		 */
		if (!TimestampDifferenceExceeds(child->started, clock_now(), HANGING_MS))
			starting++;
		return STARTING_MS;
	}
	if (pg_atomic_read_u32(&shared->wanted) == 0)
		return IDLE_MS;
	return start_if_due(child, shared);
}

/* Handles the end of a dispatcher that we started: decides when the next one is started. */
static void
handle_end(Child *child, DatabaseShared *shared)
{
	Farewell	farewell = (Farewell) pg_atomic_exchange_u32(&shared->farewell, FAREWELL_NONE);
	bool		healthy = TimestampDifferenceExceeds(child->started, clock_now(), HEALTHY_MS);

	pfree(child->handle);
	child->handle = NULL;
	switch (farewell)
	{
		case FAREWELL_NO_EXTENSION:
			child->backoff_ms = 0;
			break;

		case FAREWELL_ASKED:
			child->backoff_ms = 0;
			child->not_before = 0;
			pg_atomic_write_u32(&shared->wanted, 1);
			break;

		case FAREWELL_NONE:
		case FAREWELL_TERMINATED:	/* that is no failure, however often */
			if (healthy || farewell == FAREWELL_TERMINATED || child->backoff_ms == 0)
				child->backoff_ms = FIRST_BACKOFF_MS;
			else
				child->backoff_ms = Min(child->backoff_ms * 2, LAST_BACKOFF_MS);
			child->not_before = TimestampTzPlusMilliseconds(clock_now(), child->backoff_ms);
			pg_atomic_write_u32(&shared->wanted, 1);
			break;
	}
}

/* Starts a dispatcher, unless it must wait for something; returns in how many ms to look again. */
static long
start_if_due(Child *child, DatabaseShared *shared)
{
	long		ms;

	if (clock_ms_until(child->not_before) > 0)
		return clock_ms_until(child->not_before);
	if (starting >= MAX_STARTING)
		return STARTING_MS;
	ms = ms_until_free(shared->database);
	if (ms > 0)
		return ms;

	pg_atomic_write_u32(&shared->wanted, 0);
	if (start_dispatcher(child))
	{
		starting++;
		return STARTING_MS;
	}
	pg_atomic_write_u32(&shared->wanted, 1);
	return NO_SLOT_MS;
}

/*
 * Returns how long until a dispatcher can connect, or until we look again; 0 =
 * now. While a command holds the lock on the database it would have to wait, in
 * vain if that is DROP DATABASE. A database that does not allow connections is
 * checked again when it is altered.
 */
static long
ms_until_free(Oid database)
{
	LOCKTAG		tag;
	long		ms = 0;

	StartTransactionCommand();
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	if (LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		ms = LOCKED_MS;
	else if (!allows_connections(database))
		ms = IDLE_MS;
	CommitTransactionCommand();
	return ms;
}

/*
 * Check whether a database exists, and allows connections. Reads pg_database and not
 * the syscache: a commit wakes us before it sends the invalidation messages, and
 * nothing would wake us again.
 */
static bool
allows_connections(Oid database)
{
	Relation	table = table_open(DatabaseRelationId, AccessShareLock);
	bool		allowed;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	row;

	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(database));
	scan = systable_beginscan(table, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	row = systable_getnext(scan);
	allowed = HeapTupleIsValid(row) && row_allows_connections((Form_pg_database) GETSTRUCT(row));
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return allowed;
}

/* The same by its row. An interrupted DROP DATABASE leaves a negative limit. */
static bool
row_allows_connections(Form_pg_database database)
{
	return database->datallowconn && database->datconnlimit >= -1;
}

/* Starts a dispatcher. Returns false, and reports it, if no worker slot is free. */
static bool
start_dispatcher(Child *child)
{
	child->handle = process_start("dispatcher", OUTBOX_DISPATCHER_MAIN, child->database, 0);
	child->started = clock_now();
	if (child->handle == NULL)
	{
		problem_set_in(shared_find(child->database, false), PROBLEM_NO_DISPATCHER,
					   "No dispatcher is running because no worker slot is free. Raise max_worker_processes and restart the server.");
		if (!no_slot)
			ereport(LOG,
					(errmsg("outbox: no worker slot is free for a dispatcher"),
					 errhint("Raise \"max_worker_processes\" and restart the server.")));
	}
	no_slot = child->handle == NULL;
	return !no_slot;
}
