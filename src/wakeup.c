/*
 * wakeup.c
 *		The commit callback that wakes the dispatcher.
 *
 * Code that writes a message calls wakeup_at_commit(); the callback, registered
 * once per backend, does nothing for all other transactions. It runs after the
 * commit has become visible to others, so a dispatcher woken by it sees the
 * message. It also runs after the commit record was written, so it must never
 * raise an error, which would be a PANIC. So the entry in shared memory is
 * looked up before.
 *
 * COMMIT PREPARED has the same done by the hook on commands (utility_hook.c). A wake-up
 * comes late if its session is stopped here, or never if the hook fails: therefore
 * there is outbox.poll_interval. What the session has noted for the dispatcher is
 * gone by then, and the server may have been restarted. But PostgreSQL keeps the
 * invalidations of a prepared transaction: those of outbox.destination and
 * outbox.deferred tell that the dispatcher must read these tables again. Settings of
 * databases and roles have none, so we add one; it does not say whose settings they are.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_db_role_setting.h"
#include "fmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "src/kill_point.h"
#include "src/table/relations.h"
#include "src/table/relcache_callback.h"
#include "src/wakeup.h"

static DatabaseShared *wake;	/* whose dispatcher to wake at commit */
static uint32 reload;			/* what the dispatcher must read again */
static bool wake_launcher;
static bool *restart;			/* by the number of their entries: whose
								 * dispatchers must restart; NULL = none ever
								 * had to */

/* Tables whose invalidations are looked out for; InvalidOid = none. */
static Oid	watched[2];
static bool watched_has_changed;
static bool settings_have_changed;	/* of a database or role */

static void wake_after_commit(XactEvent event, void *arg);
static void restart_dispatchers(void);
static void keep_restart_with_prepared(void);
static void watch_relation(Oid relation);

PG_FUNCTION_INFO_V1(outbox_wake_launcher);

/* Registers the callback; called once, by _PG_init. */
void
wakeup_init(void)
{
	RegisterXactCallback(wake_after_commit, NULL);
}

/* Wakes our dispatcher when the transaction has committed. */
void
wakeup_at_commit(void)
{
	if (wake == NULL)
		wake = shared_mine();
}

/* outbox.wake_launcher(): called by the extension's script, however it is run. Without a dispatcher the launcher is woken. */
Datum
outbox_wake_launcher(PG_FUNCTION_ARGS)
{
	wakeup_at_commit();
	PG_RETURN_VOID();
}

/* Makes our dispatcher read again what these bits RELOAD_… name, after the commit. */
void
wakeup_reload_at_commit(uint32 what)
{
	wakeup_at_commit();
	reload |= what;
}

/* Called before COMMIT PREPARED, for wakeup_after_prepared(). */
void
wakeup_watch_prepared(void)
{
	static bool listens = false;
	Oid			schema = get_namespace_oid(OUTBOX_SCHEMA, true);

	if (!listens)
		relcache_callback_add(watch_relation);
	listens = true;
	watched[0] = get_relname_relid("destination", schema);
	watched[1] = get_relname_relid("deferred", schema);
	AcceptInvalidationMessages();
	watched_has_changed = false;
	settings_have_changed = false;
}

/*
 * Called after COMMIT PREPARED: wakes our dispatcher when this command has ended, and has
 * it read its tables again if the prepared transaction has changed them. If that has
 * changed settings of a database or role, all dispatchers restart; they do so even if
 * there is no outbox in this database. A change by others meanwhile has them do so for nothing.
 */
void
wakeup_after_prepared(bool has_outbox)
{
	AcceptInvalidationMessages();
	for (int i = 0; settings_have_changed && i < shared_capacity(); i++)
	{
		if (OidIsValid(shared_at(i)->database))
			wakeup_restart_at_commit(shared_at(i));
	}
	if (!has_outbox)
		return;
	if (watched_has_changed)
		wakeup_reload_at_commit(RELOAD_DESTINATIONS | RELOAD_DEFERRED);
	else
		wakeup_at_commit();
	memset(watched, 0, sizeof(watched));
}

/* Makes the launcher look at the list of databases after the commit. */
void
wakeup_launcher_at_commit(void)
{
	wake_launcher = shared_is_available();
}

/* Makes the dispatcher of a database, if it has one, restart after the commit. */
void
wakeup_restart_at_commit(DatabaseShared *shared)
{
	if (restart == NULL)
		restart = MemoryContextAllocZero(TopMemoryContext, shared_capacity() * sizeof(bool));
	restart[shared_number(shared)] = true;
}

/* An XactCallback. After the commit nothing here may raise an error. */
static void
wake_after_commit(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (wake != NULL)
			{
				KILL_POINT("committed");
				if (reload != 0)
				{
					(void) pg_atomic_fetch_or_u32(&wake->reload, reload);
					shared_wake_dispatcher(wake);
				}
				else
					shared_tell_dispatcher(wake);
				KILL_POINT("dispatcher_told");
			}
			if (wake_launcher)
				shared_wake_launcher();
			if (restart != NULL)
				restart_dispatchers();
			break;

		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;

		case XACT_EVENT_PRE_PREPARE:
			keep_restart_with_prepared();
			return;

		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			return;
	}
	wake = NULL;
	reload = 0;
	wake_launcher = false;
	if (restart != NULL)
		memset(restart, 0, shared_capacity() * sizeof(bool));
}

/*
 * Tells dispatchers to restart. One that is about to start finds the note unless it has
 * not read its settings yet; then it removes it.
 */
static void
restart_dispatchers(void)
{
	for (int i = 0; i < shared_capacity(); i++)
	{
		DatabaseShared *shared = shared_at(i);

		if (!restart[i])
			continue;
		pg_atomic_write_u32(&shared->restart, 1);
		if (pg_atomic_read_u32(&shared->dispatcher) != 0)
			shared_wake_dispatcher(shared);
	}
}

/* If dispatchers must restart, sends an invalidation with COMMIT PREPARED that tells so. */
static void
keep_restart_with_prepared(void)
{
	for (int i = 0; restart != NULL && i < shared_capacity(); i++)
	{
		if (!restart[i])
			continue;
		CacheInvalidateRelcacheByRelid(DbRoleSettingRelationId);
		return;
	}
}

/*
 * A RelationListener. When PostgreSQL has lost count of what has changed, no dispatcher
 * restarts for that: it may happen at any moment, and often.
 */
static void
watch_relation(Oid relation)
{
	settings_have_changed |= relation == DbRoleSettingRelationId;
	watched_has_changed |= relation == InvalidOid || relation == watched[0] || relation == watched[1];
}
