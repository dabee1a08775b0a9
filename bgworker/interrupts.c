/*
 * interrupts.c
 *		What other processes ask of the dispatcher: to stop, to read settings, to leave the database.
 *
 * Called by the dispatcher, and by the links to Redis and the stores while they
 * wait. It may end the process: what is done then is in shutdown.c.
 *
 * It must never be called inside a transaction.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/lmgr.h"
#include "storage/lock.h"

#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/redis_state.h"
#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/defer/reload_pace.h"
#include "bgworker/interrupts.h"
#include "bgworker/process/process.h"
#include "bgworker/process/report.h"
#include "bgworker/process/transaction.h"
#include "bgworker/shutdown.h"
#include "src/compat.h"
#include "src/sender_lock.h"
#include "src/settings.h"
#include "src/shared.h"

#define ATTEND_MS			100 /* while a command may need the database */

static Position *position;
static bool settings_are_new;
static bool is_committed;		/* the standby may lack this transaction: no
								 * other may begin */

static Position *position_to_note(void);
static bool database_is_wanted(void);

/* Prepares for use; called once, when the dispatcher starts. */
void
interrupts_init(Position *ours)
{
	position = ours;
}

/*
 * Does what others ask of this process. Must be called wherever it waits, and
 * never inside a transaction. Does not return if the process must end.
 */
void
interrupts_attend(void)
{
	if (ProcDiePending)
		shutdown_leave_in_order(position_to_note());
	CHECK_FOR_INTERRUPTS();
	if (process_reload_settings())
	{
		settings_are_new = true;
		report_retention();
	}
	if (pg_atomic_read_u32(&shared_mine()->restart) != 0)
		shutdown_for_successor(position_to_note());
	if (database_is_wanted())
		shutdown_end(FAREWELL_ASKED, position_to_note());
}

/*
 * The same while a commit waits for the standby, which may take as long as that
 * is away: the lease is renewed meanwhile, unless dispatch is off. Returns false
 * if the wait must be put off, because the lease cannot be renewed before the
 * answers to the batches under way have been received.
 */
bool
interrupts_attend_to_standby(void)
{
	is_committed = true;
	interrupts_attend();
	if (outbox_dispatch && redis_session_may_renew())
		redis_state_renew_lease();
	is_committed = false;
	return !(redis_session_awaits_answers() && redis_state_lease_is_due());
}

/*
 * Handles a transaction that could not begin: ends the process if our extension
 * is gone, otherwise waits.
 */
void
interrupts_attend_to_refusal(void)
{
	switch (transaction_refusal())
	{
		case REFUSAL_NONE:
			return;
		case REFUSAL_GONE:
			shutdown_end(FAREWELL_NO_EXTENSION, position_to_note());
			break;
		case REFUSAL_ANOTHER:
			shutdown_end(FAREWELL_ASKED, position_to_note());
			break;
		case REFUSAL_BUSY:
			process_pause(ATTEND_MS, OUTBOX_WAIT_DISPATCHER);
			interrupts_attend();
			break;
	}
}

/*
 * Reads again what administrators have changed, if it is due. Must be called between windows.
 * Returns false if that must wait: nothing may be published by what was read before.
 */
bool
interrupts_reload(void)
{
	uint32		asked;

	if (!interrupts_reload_is_due())
		return true;
	asked = pg_atomic_exchange_u32(&shared_mine()->reload, 0);
	if (!transaction_begin("reading what was changed"))
	{
		(void) pg_atomic_fetch_or_u32(&shared_mine()->reload, asked);
		return false;
	}
	destination_load();
	deferral_load();
	transaction_commit();
	if (destination_any_was_given_partitions())
		sender_lock_begin_epoch();
	return true;
}

/* Check whether interrupts_reload() has something to do. */
bool
interrupts_reload_is_due(void)
{
	return reload_pace_ms_until() <= 0;
}

/*
 * Check whether the settings are to be read again, or have been and
 * interrupts_take_new_settings() was not called since.
 */
bool
interrupts_have_new_settings(void)
{
	return settings_are_new || ConfigReloadPending;
}

/* The same, and notes that this is known. */
bool
interrupts_take_new_settings(void)
{
	bool		were_new = settings_are_new;

	settings_are_new = false;
	return were_new;
}

/* Returns how long a wait may last that no other process can end. */
long
interrupts_ms_until_look(void)
{
	return pg_atomic_read_u32(&shared_mine()->askers) != 0 ? ATTEND_MS : PG_INT32_MAX;
}

/* Returns the position, to be noted when the process ends; NULL if no transaction may begin now. */
static Position *
position_to_note(void)
{
	return is_committed ? NULL : position;
}

/*
 * Check whether a command holds the lock on our database and waits for all
 * processes to leave it. Our successor will wait for the same lock.
 *
 * Any role can take that lock for a moment, because DROP DATABASE takes it
 * before it checks permissions, and can wait for it as long as another process
 * holds a conflicting one. So processes that only wait do not count, and we
 * look only while utility_hook.c says that a role with the permission is there.
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
