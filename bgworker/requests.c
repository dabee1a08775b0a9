/*
 * requests.c
 *		What others ask of the dispatcher: stop, new settings, leave the database.
 *
 * Called by the dispatcher, and by the links to Redis and the stores while they
 * wait. It may end the process; then it says why, so that the launcher knows
 * whether to start another one.
 *
 * It must never be called inside of a transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"

#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination.h"
#include "bgworker/process.h"
#include "bgworker/publish/redis_session.h"
#include "bgworker/redis_state.h"
#include "bgworker/requests.h"
#include "bgworker/transaction.h"
#include "src/ring/filter.h"
#include "src/settings.h"
#include "src/shared.h"

#define ATTEND_MS			100 /* while somebody may need the database */

static Position *position;
static bool settings_are_new;
static bool is_committed;		/* what the standby may lack: no transaction
								 * may begin */

static void say_goodbye(void);
static void leave(Farewell farewell) pg_attribute_noreturn();
static bool extension_exists(void);
static bool database_is_wanted(void);

/* Prepares for use; once, when the dispatcher starts. */
void
requests_init(Position *ours)
{
	position = ours;
}

/*
 * Does what others want of this process. To be called wherever it waits; never
 * inside of a transaction. Does not return if it must go.
 */
void
requests_attend(void)
{
	if (ProcDiePending)
		say_goodbye();
	CHECK_FOR_INTERRUPTS();
	settings_are_new |= process_reload_settings();
	if (pg_atomic_read_u32(&shared_mine()->restart) != 0 || database_is_wanted())
		leave(FAREWELL_ASKED);
}

/*
 * The same while a commit waits for the standby, for as long as that is away: we
 * live, so the lease stays ours, unless dispatch is off.
 */
void
requests_attend_to_standby(void)
{
	is_committed = true;
	requests_attend();
	if (outbox_dispatch && redis_session_may_renew())
		redis_state_renew_lease();
	is_committed = false;
}

/* A transaction could not begin: leaves if our extension is gone, else waits. */
void
requests_attend_to_refusal(void)
{
	switch (transaction_refusal())
	{
		case REFUSAL_NONE:
			return;
		case REFUSAL_GONE:
			leave(FAREWELL_NO_EXTENSION);
			break;
		case REFUSAL_ANOTHER:
			leave(FAREWELL_ASKED);
			break;
		case REFUSAL_BUSY:
			process_pause(ATTEND_MS, OUTBOX_WAIT_DISPATCHER);
			requests_attend();
			break;
	}
}

/* Reads again what administrators have changed; between windows. */
void
requests_reload(void)
{
	DatabaseShared *shared = shared_mine();

	if (pg_atomic_read_u32(&shared->reload) == 0)
		return;
	pg_atomic_write_u32(&shared->reload, 0);
	if (!transaction_begin("reading what was changed"))
	{
		pg_atomic_write_u32(&shared->reload, 1);
		return;
	}
	destination_load();
	deferral_load();
	transaction_commit();
}

/* Check whether requests_reload() has something to do. */
bool
requests_reload_is_due(void)
{
	return pg_atomic_read_u32(&shared_mine()->reload) != 0;
}

/*
 * Check whether the settings have been read again, and nobody has taken
 * notice yet.
 */
bool
requests_have_new_settings(void)
{
	return settings_are_new;
}

/* The same, and takes notice. */
bool
requests_take_new_settings(void)
{
	bool		were_new = settings_are_new;

	settings_are_new = false;
	return were_new;
}

/* How long a wait may last that nobody can end. */
long
requests_ms_until_look(void)
{
	return pg_atomic_read_u32(&shared_mine()->askers) != 0 ? ATTEND_MS : PG_INT32_MAX;
}

/*
 * For a clean stop: the process that publishes next need not wait, nor do
 * anything again.
 */
static void
say_goodbye(void)
{
	redis_session_release();
	if (is_committed)
		return;

	/* It cannot wait, and we must not die in the middle of it. */
	HOLD_INTERRUPTS();
	position_close_at_once(position);
	RESUME_INTERRUPTS();
}

/* Ends the process, and tells the launcher why. */
static void
leave(Farewell farewell)
{
	DatabaseShared *shared = shared_mine();

	if (farewell == FAREWELL_ASKED)
		say_goodbye();
	redis_session_release();

	/* A commit that still took us for alive may have created the extension. */
	pg_atomic_write_u32(&shared->dispatcher, 0);
	if (farewell == FAREWELL_NO_EXTENSION && extension_exists())
		farewell = FAREWELL_ASKED;
	if (farewell == FAREWELL_NO_EXTENSION)
		filters_forget_all(shared);
	pg_atomic_write_u32(&shared->farewell, farewell);
	proc_exit(0);
}

static bool
extension_exists(void)
{
	bool		there;

	StartTransactionCommand();
	there = OidIsValid(get_extension_oid("outbox", true));
	CommitTransactionCommand();
	return there;
}

/*
 * Check whether a command holds the lock on our database and waits for
 * everybody to leave it. Our successor will wait for the same lock.
 *
 * Anybody gets that lock for a moment, for DROP DATABASE takes it before it
 * checks rights, and may wait for it as long as somebody else holds another
 * one. So those who merely wait do not count, and we look only while ddl.c
 * says that somebody with the right to it is there.
 */
static bool
database_is_wanted(void)
{
	LOCKTAG		tag;
	int			holders;

	if (pg_atomic_read_u32(&shared_mine()->askers) == 0)
		return false;
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	pfree(GetLockConflicts(&tag, RowExclusiveLock, &holders));
	return holders > 0;
}
