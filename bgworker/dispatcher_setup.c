/*
 * dispatcher_setup.c
 *		How a dispatcher becomes that of its database, and what it reads from the tables then.
 *
 * Called by the dispatcher once, before it looks for messages. Redis is not
 * asked here, and nothing is sent: where to resume is found out on each connect
 * (lane/resume.c).
 */
#include "postgres.h"

#include "storage/ipc.h"

#include "bgworker/connection/redis_session.h"
#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/dispatcher_setup.h"
#include "bgworker/housekeeping.h"
#include "bgworker/identity/instance.h"
#include "bgworker/interrupts.h"
#include "bgworker/lane/used_lanes.h"
#include "bgworker/process/last_error.h"
#include "bgworker/process/process.h"
#include "bgworker/process/report.h"
#include "bgworker/process/transaction.h"
#include "bgworker/propagate/propagation.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/shutdown.h"
#include "bgworker/window/copied_messages.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/log/deferred.h"
#include "src/log/log.h"
#include "src/log/log_id.h"
#include "src/problem.h"
#include "src/ring/ring.h"
#include "src/shared.h"
#include "src/unique_id.h"

static void register_dispatcher(DatabaseShared *shared);
static void deregister_dispatcher(int code, Datum arg);
static void begin_at_start(void);
static void load_instance(Position *position);

/* Connects to the database, and makes this process its dispatcher. Returns the entry of the database. */
DatabaseShared *
dispatcher_setup_connect(Oid database)
{
	DatabaseShared *shared = shared_find(database, true);

	/* Connecting reads the settings: only a change after this is new. */
	if (shared)
	{
		pg_atomic_write_u32(&shared->restart, 0);
		pg_atomic_write_u32(&shared->farewell, FAREWELL_NONE);
	}
	process_connect(database);
	if (shared == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("outbox: too many databases"),
				 errdetail("The maximum number of databases is %d.", shared_capacity())));
	process_take_role(LOCK_CLASS_DISPATCHER);
	register_dispatcher(shared);
	return shared;
}

/*
 * Reads all state from the tables, and sets the position to where the tables say
 * that publishing got. Ends the process if this database does not need a
 * dispatcher.
 */
void
dispatcher_setup_load(Position *position)
{
	KILL_POINT("dispatcher_registered");
	begin_at_start();
	rings_reload();
	load_instance(position);

	/*
	 * Windows of our predecessor may be committed here but not on the
	 * synchronous standby. Waiting for a newer commit waits for them, too.
	 */
	(void) transaction_execute("UPDATE outbox.instance SET database = database", 0, NULL, NULL, NULL);
	KILL_POINT("start_written");
	transaction_commit();
	KILL_POINT("start_committed");

	begin_at_start();
	destination_load();
	deferral_load();
	log_id_note_used(Max(log_scan_highest_id(), deferred_highest_id()));
	transaction_commit();
	housekeeping_init();
	report_state(DISPATCHER_IDLE);
}

/* Makes this process visible in shared memory, and resets what its predecessor reported there. */
static void
register_dispatcher(DatabaseShared *shared)
{
	last_error_init();
	before_shmem_exit(deregister_dispatcher, PointerGetDatum(shared));
	report_begin();
	problem_clear_all();
	pg_atomic_write_u32(&shared->dispatcher, MyProcNumber + 1);
}

/* Called whenever the process ends other than by a crash; the argument is the entry of the database. */
static void
deregister_dispatcher(int code, Datum arg)
{
	DatabaseShared *shared = (DatabaseShared *) DatumGetPointer(arg);

	supervision_end();
	if (process_was_told_to_end() && last_error_text() == NULL)
	{
		shutdown_leave_amid_work();
		pg_atomic_write_u32(&shared->farewell, FAREWELL_TERMINATED);
	}
	pg_atomic_write_u32(&shared->dispatcher, 0);
	report_end();
	problem_clear_all();
	if (last_error_text())
		problem_set(PROBLEM_NO_DISPATCHER, "No dispatcher is running, because the last one has failed: %s. See the server log. Another one is started automatically.",
					last_error_text());
	else
		problem_hold(PROBLEM_NO_DISPATCHER, true);
	ConditionVariableBroadcast(&shared->progress);
	shared_wake_launcher();
}

/* Begins a transaction; waits while the extension is being dropped or altered. */
static void
begin_at_start(void)
{
	while (!transaction_begin("starting"))
		interrupts_attend_to_refusal();
}

/*
 * Reads which instance this is. The copy of a database that still exists gets
 * an id of its own, and sends nothing of the original.
 */
static void
load_instance(Position *position)
{
	static Instance instance;	/* others keep a pointer to it */

	instance_load(&instance);
	position_load(position, instance.first_window);
	if (instance.is_copy)
	{
		/*
		 * As with those that are discarded, records of ours must not wait for
		 * them.
		 */
		(void) transaction_execute("UPDATE outbox.deferred SET state = 'discarded' WHERE state NOT IN ('returned', 'discarded')", 0, NULL, NULL, NULL);
		(void) transaction_execute("DELETE FROM outbox.deferred", 0, NULL, NULL, NULL);
		(void) transaction_execute("DELETE FROM outbox.loss", 0, NULL, NULL, NULL);
		(void) transaction_execute("DELETE FROM outbox.mapping", 0, NULL, NULL, NULL);
		(void) transaction_execute("DELETE FROM outbox.era", 0, NULL, NULL, NULL);
		used_lanes_forget_all();
		copied_messages_skip_foreign(position, &instance);
		unique_id_random(&instance.id);
		instance_become(&instance, position->first_window);
		ereport(LOG, (errmsg("outbox: this database is a copy; pending messages are sent by its original")));
	}
	redis_session_set_instance(&instance);
	propagation_set_instance(&instance);
}
