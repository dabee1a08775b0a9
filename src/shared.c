/*
 * shared.c
 *		The extension's shared memory: one entry for each database.
 *
 * Used by sessions, the launcher and the dispatchers. It holds only plain
 * values, nothing that is valid in one process only: a process is identified by
 * its number. Setting the latch of a process that has ended may wake another
 * process, which is harmless.
 *
 * All of it is a cache or a report. The tables are authoritative; a crash
 * empties this memory and nothing is lost. Without shared_preload_libraries
 * there is no shared memory, and shared_mine() returns NULL.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "src/compat.h"
#include "src/limits.h"
#include "src/shared.h"

#define TRANCHE			"outbox"

typedef struct SharedState
{
	LWLock	   *lock;			/* protects which database an entry is for */
	pg_atomic_uint32 launcher;	/* its process number + 1, 0 = none */
	pg_atomic_uint32 launcher_calls;	/* how often it was woken: latches are
										 * reset by all kinds of waits */
	DatabaseShared databases[MAX_DATABASES];
} SharedState;

static SharedState *shared_state;

static void entry_init(DatabaseShared *shared, Oid database);

/* Reserves the memory; for the shmem_request_hook. */
void
shared_request(void)
{
	RequestAddinShmemSpace(sizeof(SharedState));
	RequestNamedLWLockTranche(TRANCHE, MAX_DATABASES + 1);
}

/* Creates or finds the memory; for the shmem_startup_hook. */
void
shared_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared_state = ShmemInitStruct("outbox", sizeof(SharedState), &found);
	if (!found)
	{
		LWLockPadded *locks = GetNamedLWLockTranche(TRANCHE);

		memset(shared_state, 0, sizeof(*shared_state));
		shared_state->lock = &locks[MAX_DATABASES].lock;
		pg_atomic_init_u32(&shared_state->launcher, 0);
		pg_atomic_init_u32(&shared_state->launcher_calls, 0);
		for (int i = 0; i < MAX_DATABASES; i++)
		{
			shared_state->databases[i].lock = &locks[i].lock;
			ConditionVariableInit(&shared_state->databases[i].progress);
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Check whether the library was preloaded. */
bool
shared_is_available(void)
{
	return shared_state != NULL;
}

/*
 * Returns the entry of our own database, and creates it if there is none; NULL
 * if the library was not preloaded or there are too many databases. The entry
 * stays valid as long as we are connected, because it is freed only when its
 * database is gone.
 */
DatabaseShared *
shared_mine(void)
{
	static DatabaseShared *mine;

	if (mine == NULL && shared_state != NULL && OidIsValid(MyDatabaseId))
		mine = shared_find(MyDatabaseId, true);
	return mine;
}

/* Check whether this process is the dispatcher. Needs no lock: no other process can write our pid there. */
bool
shared_is_dispatcher(void)
{
	DatabaseShared *shared = shared_mine();

	return shared && shared->report.pid == MyProcPid;
}

/* Returns the entry of a database; NULL if there is none and none can be created. */
DatabaseShared *
shared_find(Oid database, bool create)
{
	DatabaseShared *found = NULL;
	DatabaseShared *vacant = NULL;

	LWLockAcquire(shared_state->lock, create ? LW_EXCLUSIVE : LW_SHARED);
	for (int i = 0; i < MAX_DATABASES && found == NULL; i++)
	{
		DatabaseShared *entry = &shared_state->databases[i];

		if (entry->database == database)
			found = entry;
		else if (entry->database == InvalidOid && vacant == NULL)
			vacant = entry;
	}
	if (found == NULL && create && vacant != NULL)
	{
		entry_init(vacant, database);
		found = vacant;
	}
	LWLockRelease(shared_state->lock);
	return found;
}

/* Frees the entry of a database that no longer exists. */
void
shared_forget(DatabaseShared *shared)
{
	LWLockAcquire(shared_state->lock, LW_EXCLUSIVE);
	shared->database = InvalidOid;
	LWLockRelease(shared_state->lock);
}

/* Returns how many entries shared_at() can return. */
int
shared_capacity(void)
{
	return MAX_DATABASES;
}

/* Returns the number of an entry, from 0. */
int
shared_number(const DatabaseShared *shared)
{
	return shared - shared_state->databases;
}

/* Returns the i-th entry, which may be free. */
DatabaseShared *
shared_at(int i)
{
	return &shared_state->databases[i];
}

/* Notes that this process is the launcher, or that it no longer is. */
void
shared_set_launcher(bool present)
{
	pg_atomic_write_u32(&shared_state->launcher, present ? MyProcNumber + 1 : 0);
}

/* Check whether the launcher runs. */
bool
shared_has_launcher(void)
{
	return pg_atomic_read_u32(&shared_state->launcher) != 0;
}

/* Returns a number that changes whenever the launcher is woken. */
uint32
shared_launcher_calls(void)
{
	return pg_atomic_read_u32(&shared_state->launcher_calls);
}

/* Wakes the launcher. Raises no error, so it may be called after a commit. */
void
shared_wake_launcher(void)
{
	pg_atomic_fetch_add_u32(&shared_state->launcher_calls, 1);
	shared_wake_process(pg_atomic_read_u32(&shared_state->launcher));
}

/*
 * Wakes the dispatcher of a database, or asks the launcher for one if it has
 * none. Raises no error, so it may be called after a commit.
 */
void
shared_wake_dispatcher(DatabaseShared *shared)
{
	uint32		dispatcher = pg_atomic_read_u32(&shared->dispatcher);

	pg_atomic_fetch_add_u32(&shared->calls, 1);
	if (dispatcher != 0)
	{
		shared_wake_process(dispatcher);
		return;
	}
	pg_atomic_write_u32(&shared->wanted, 1);
	shared_wake_launcher();
}

/*
 * The same after a commit of messages, but a dispatcher that is at work is not
 * woken, because it compares the count before it sleeps; nor is one that cannot
 * send now. Setting a latch costs a system call, and for a process that waits
 * for Redis also a context switch.
 */
void
shared_tell_dispatcher(DatabaseShared *shared)
{
	if (pg_atomic_read_u32(&shared->dispatcher) == 0)
	{
		shared_wake_dispatcher(shared);
		return;
	}

	/*
	 * Both sides write first and then read, so at least one of them notices
	 * the other.
	 */
	pg_atomic_fetch_add_u32(&shared->wakeups, 1);
	if (pg_atomic_read_u32(&shared->asleep) != 0 &&
		pg_atomic_exchange_u32(&shared->asleep, 0) != 0)
		shared_wake_process(pg_atomic_read_u32(&shared->dispatcher));
}

/*
 * Sets all of an entry but its lock and its condition variable, for a database that
 * has none. Whichever process makes it, the launcher has not looked into this database yet.
 */
static void
entry_init(DatabaseShared *shared, Oid database)
{
	shared->database = database;
	shared->extension = InvalidOid;
	memset(&shared->rings, 0, sizeof(shared->rings));
	pg_atomic_init_u64(&shared->rings_version, 0);
	memset(&shared->report, 0, sizeof(shared->report));
	memset(shared->problems, 0, sizeof(shared->problems));
	shared->report.published = -1;
	shared->report.propagated = -1;
	shared->report.sent = -1;
	memset(&shared->books, 0, sizeof(shared->books));
	pg_atomic_init_u32(&shared->dispatcher, 0);
	pg_atomic_init_u32(&shared->wakeups, 0);
	pg_atomic_init_u32(&shared->calls, 0);
	pg_atomic_init_u32(&shared->asleep, 0);
	pg_atomic_init_u32(&shared->farewell, FAREWELL_NONE);
	pg_atomic_init_u32(&shared->wanted, 1);
	pg_atomic_init_u32(&shared->askers, 0);
	pg_atomic_init_u32(&shared->restart, 0);
	pg_atomic_init_u32(&shared->reload, 0);
	pg_atomic_init_u32(&shared->send_epoch, 0);
	pg_atomic_init_u64(&shared->sent, 0);
	pg_atomic_init_u64(&shared->duplicates, 0);
	for (int i = 0; i < COUNTED_ENDPOINTS; i++)
	{
		pg_atomic_init_u64(&shared->counters[i].endpoint, 0);
		pg_atomic_init_u64(&shared->counters[i].duplicates, 0);
	}
	pg_atomic_init_u64(&shared->next_id, 1);
	pg_atomic_init_u64(&shared->last_id, 0);
	pg_atomic_init_u64(&shared->tombstones, 0);
	pg_atomic_init_u32(&shared->retention, 0);
	pg_atomic_init_u32(&shared->replay_window, INT_MAX);
	pg_atomic_init_u64(&shared->expired_tx, 0);
	pg_atomic_init_u64(&shared->cleanups_asked, 0);
	pg_atomic_init_u64(&shared->cleanups_done, 0);
	pg_atomic_init_u64(&shared->records_removed, 0);
}

/* Wakes the process with the number given + 1; 0 = none. Raises no error. */
void
shared_wake_process(uint32 number_plus_one)
{
	if (number_plus_one != 0)
		SetLatch(&GetPGProcByNumber(number_plus_one - 1)->procLatch);
}
