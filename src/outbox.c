/*
 * outbox.c
 *		The module: called when the library is loaded.
 *
 * If it is loaded by shared_preload_libraries it sets up shared memory, the
 * hook on utility commands and the launcher. If it is loaded later, by the
 * first call of a function, messages can be enqueued but are not sent. It does
 * nothing under pg_upgrade, where no worker may write.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"

#include "src/claim/open_message.h"
#include "src/outbox.h"
#include "src/record/endpoint.h"
#include "src/record/record_table_cache.h"
#include "src/ring/filter.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/relations.h"
#include "src/utility_hook.h"
#include "src/wakeup.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type previous_shmem_request;
static shmem_startup_hook_type previous_shmem_startup;

static void set_up_server(void);
static void request_shared_memory(void);
static void start_shared_memory(void);
static void register_launcher(void);

/* Called by PostgreSQL when the library is loaded. */
void
_PG_init(void)
{
	settings_define();
	if (IsBinaryUpgrade)
		return;

	relations_init();
	endpoint_init();
	record_table_cache_init();
	open_message_init();
	wakeup_init();
	if (process_shared_preload_libraries_in_progress)
		set_up_server();
}

/* Does what only a preloaded library can do. */
static void
set_up_server(void)
{
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
	utility_hook_init();
	register_launcher();
}

/* A shmem_request_hook. */
static void
request_shared_memory(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	shared_request();
	filter_request();
}

/* A shmem_startup_hook. */
static void
start_shared_memory(void)
{
	if (previous_shmem_startup)
		previous_shmem_startup();
	shared_startup();
	filter_startup();
}

/* Registers the launcher, which starts all other processes of ours. */
static void
register_launcher(void)
{
	BackgroundWorker worker = {
		.bgw_name = "outbox launcher",
		.bgw_type = "outbox launcher",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = 1,
		.bgw_library_name = OUTBOX_LIBRARY,
		.bgw_function_name = OUTBOX_LAUNCHER_MAIN
	};

	RegisterBackgroundWorker(&worker);
}
