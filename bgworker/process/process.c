/*
 * process.c
 *		What our background processes have in common: start, settings, waiting.
 *
 * Called by the dispatcher and the bookkeeper, and by the processes that start
 * them.
 */
#include "postgres.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "bgworker/process/process.h"
#include "src/compat.h"
#include "src/outbox.h"

/* What must not depend on the configuration: ALTER DATABASE ... SET reaches our processes, too. */
static const char *const forced_settings[][2] = {
	{"role", "none"},
	{"search_path", "pg_catalog"},
	{"synchronous_commit", "on"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"statement_timeout", "0"},
	{"lock_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"session_replication_role", "origin"},
	{"row_security", "off"},
	{"exit_on_error", "off"},

	/*
	 * Our plans are made once, perhaps while a table is still empty, and must
	 * not depend on what suits other queries of the database.
	 */
	{"enable_seqscan", "off"},
	{"enable_indexscan", "on"},
	{"enable_indexonlyscan", "on"},
	{"enable_bitmapscan", "on"},
	{"enable_tidscan", "on"},
	{"enable_nestloop", "on"},
	{"enable_hashjoin", "on"},
	{"enable_hashagg", "on"},
	{"enable_sort", "on"},
	{"geqo", "off"},
	{"from_collapse_limit", "8"},
	{"join_collapse_limit", "8"},
	{"plan_cache_mode", "auto"},
	{"cursor_tuple_fraction", "0.1"},
	{"seq_page_cost", "1"},
	{"random_page_cost", "4"},
	{"cpu_tuple_cost", "0.01"},
	{"cpu_index_tuple_cost", "0.005"},
	{"cpu_operator_cost", "0.0025"},
	{"effective_cache_size", "4GB"},
	{"max_parallel_workers_per_gather", "0"},
	{"jit", "off"},

	/* A window that does not fit into memory must be sorted in any case. */
	{"temp_file_limit", "-1"}
};

static LOCKTAG role_lock;		/* what process_take_role() has taken */
static volatile sig_atomic_t told_to_end;	/* SIGTERM has come */

static void handle_sigterm(SIGNAL_ARGS);
static void lift_transaction_timeout(void);
static void force_settings(void);
static void give_memory_back(void);
static void lock_role(void);

/*
 * Starts the process of that kind for a database; `turn` is passed in bgw_extra.
 * Returns its handle, in TopMemoryContext; NULL if no worker slot is free. This
 * process gets a signal when the other one starts and ends.
 */
BackgroundWorkerHandle *
process_start(const char *kind, const char *function, Oid database, uint32 turn)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = OUTBOX_LIBRARY,
		.bgw_main_arg = ObjectIdGetDatum(database),
		.bgw_notify_pid = MyProcPid
	};
	BackgroundWorkerHandle *handle;
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

	snprintf(worker.bgw_type, BGW_MAXLEN, "outbox %s", kind);
	snprintf(worker.bgw_name, BGW_MAXLEN, "outbox %s for database %u", kind, database);
	strlcpy(worker.bgw_function_name, function, BGW_MAXLEN);
	memcpy(worker.bgw_extra, &turn, sizeof(turn));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		handle = NULL;
	MemoryContextSwitchTo(caller);
	return handle;
}

/*
 * Lets signals reach this process, before it connects. PostgreSQL has a background worker
 * ignore SIGHUP from its fork until here: the settings are read in any case, because a reload
 * may have come meanwhile, and it is never told of that again.
 */
void
process_begin(void)
{
	pqsignal(SIGTERM, handle_sigterm);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);

	/*
	 * A cancel could end the wait for the standby before it has our window,
	 * and would be an error, after which the launcher starts nothing for a
	 * second.
	 */
	pqsignal(SIGINT, SIG_IGN);
	BackgroundWorkerUnblockSignals();
	ProcessConfigFile(PGC_SIGHUP);
	lift_transaction_timeout();
}

/* Connects this process to a database, and sets what our statements need. */
void
process_connect(Oid database)
{
	process_begin();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	force_settings();
	give_memory_back();
}

/* Check whether SIGTERM has come, even when the process is ending because of it: what `die` notes is forgotten by then. */
bool
process_was_told_to_end(void)
{
	return told_to_end;
}

/*
 * Takes a role that only one process in a database may have; ends this process
 * if another one has it. A restarted launcher may start a second dispatcher,
 * and a bookkeeper of an earlier turn may not have ended yet.
 */
void
process_take_role(LockClass role)
{
	SET_LOCKTAG_ADVISORY(role_lock, MyDatabaseId, 0, 0, role);
	lock_role();
}

/*
 * Releases advisory locks of this session that code of others has taken: they outlive its
 * transaction, and could fill the lock table of the server. Such code may have released that
 * of our role, too, so we take it again.
 */
void
process_release_locks(void)
{
	LockReleaseSession(USER_LOCKMETHOD);
	lock_role();
}

/* Takes the lock on our role, or ends this process. */
static void
lock_role(void)
{
	if (LockAcquire(&role_lock, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		proc_exit(0);
}

/* Reads the settings again if a reload was requested; returns whether it was. */
bool
process_reload_settings(void)
{
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

/* Sleeps, regardless of the latch. */
void
process_pause(long ms, OutboxWait wait)
{
	(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, wait_event_of(wait));
}

/* Sleeps until the latch is set. */
void
process_sleep(long ms, OutboxWait wait)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(ms, 1), wait_event_of(wait));
}

/*
 * The handler of SIGTERM. It works even in a transaction, which may wait for a lock of
 * another session or read a large log.
 */
static void
handle_sigterm(SIGNAL_ARGS)
{
	told_to_end = true;
	die(postgres_signal_arg);
}

/*
 * Takes transaction_timeout away from this process. Called before it connects:
 * that is a transaction, too, which would be limited by what postgresql.conf says.
 */
static void
lift_transaction_timeout(void)
{
	if (COMPAT_TRANSACTION_TIMEOUT)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

/* Sets what must not depend on the configuration. */
static void
force_settings(void)
{
	for (int i = 0; i < lengthof(forced_settings); i++)
		SetConfigOption(forced_settings[i][0], forced_settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Makes the C library give memory back. After the first large body it would
 * take such sizes for usual, and keep their memory for the next one.
 */
static void
give_memory_back(void)
{
#ifdef __GLIBC__
	(void) mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
	(void) mallopt(M_TRIM_THRESHOLD, 4 * 1024 * 1024);
#endif
}
