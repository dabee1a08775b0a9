/*
 * caller_check.c
 *		Checks whether a call may be made in this transaction and on this server.
 *
 * Called by the functions that applications call, before they do anything else.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tcop/pquery.h"

#include "src/api/caller_check.h"
#include "src/owner_privileges.h"

#define PRELOAD_HINT	"Set shared_preload_libraries = 'outbox' in postgresql.conf, and restart the server."

static void warn_unless_preloaded(void);

/*
 * Raises an error if a function may not write here: 25006 in a read-only
 * transaction, 55000 in a trigger of a record table.
 */
void
caller_check_can_write(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	owner_code_refuse();
}

/*
 * The same for a function that stores messages or their records: warns if nothing
 * will send them. It may be called as a procedure too, which has no snapshot in
 * autocommit; arguments that are stored out of line are read with one.
 */
void
caller_check_can_store(const char *function)
{
	caller_check_can_write(function);
	warn_unless_preloaded();
	EnsurePortalSnapshotExists();
}

/* Returns what the processes of this database share; raises 55000 if the library was not preloaded. */
DatabaseShared *
caller_check_preloaded(void)
{
	DatabaseShared *shared = shared_mine();

	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("outbox must be loaded via \"shared_preload_libraries\""),
				 errhint(PRELOAD_HINT)));
	return shared;
}

/* Warns once per session: a server that stores messages and sends none must not go unnoticed. */
static void
warn_unless_preloaded(void)
{
	static bool warned = false;

	if (warned || shared_is_available())
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("messages are stored but not sent, because outbox is not preloaded"),
			 errhint(PRELOAD_HINT)));
}
