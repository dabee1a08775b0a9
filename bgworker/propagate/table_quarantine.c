/*
 * table_quarantine.c
 *		Custom record tables on which a statement did not end.
 *
 * The dispatcher adds a table when it ends a bookkeeper that works on it
 * (supervision.c); the bookkeeper checks the list before each statement
 * (table_statement.c). The list is in shared memory, so it outlives both.
 *
 * A table must not stay in the list when it was altered: it may work again.
 */
#include "postgres.h"

#include "bgworker/propagate/table_quarantine.h"
#include "src/clock.h"
#include "src/table/relcache_callback.h"

static void release_altered(Oid table);

/* Prepares for use; called once, when the bookkeeper starts. */
void
table_quarantine_init(void)
{
	relcache_callback_add(release_altered);
}

/*
 * Adds the table that the bookkeeper works on, because the process has ended or
 * is ended there. Uses the entry that the table already has, or else one whose
 * time is over; there are enough of them. The caller holds the lock
 * exclusively.
 */
void
table_quarantine_add(Bookkeeping *books, Oid table)
{
	QuarantinedTable *place = &books->quarantined[0];

	for (int i = 1; i < QUARANTINED_TABLES && place->table != table; i++)
	{
		if (books->quarantined[i].table == table || books->quarantined[i].until < place->until)
			place = &books->quarantined[i];
	}
	place->table = table;
	place->until = clock_now() + TABLE_QUARANTINE_S * USECS_PER_SEC;
	books->ended_at = table;
	books->busy_with = InvalidOid;
}

/* Raises an error if a statement on this table did not end a while ago. */
void
table_quarantine_check(Oid table)
{
	DatabaseShared *shared = shared_mine();
	TimestampTz until = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < QUARANTINED_TABLES; i++)
	{
		if (shared->books.quarantined[i].table == table)
			until = Max(until, shared->books.quarantined[i].until);
	}
	LWLockRelease(shared->lock);
	if (until > clock_now())
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("a statement on the table did not end"),
				 errdetail("A trigger may hang, so the table is left alone for %d s.", TABLE_QUARANTINE_S)));
}

/*
 * Returns the table at which the previous bookkeeper was ended because a
 * statement there did not end.
 */
Oid
table_quarantine_ended_at(void)
{
	Oid			table;

	LWLockAcquire(shared_mine()->lock, LW_SHARED);
	table = shared_mine()->books.ended_at;
	LWLockRelease(shared_mine()->lock);
	return table;
}

/*
 * A RelationListener: removes a table that was altered, or has lost a trigger,
 * because it may work again.
 */
static void
release_altered(Oid table)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < QUARANTINED_TABLES; i++)
	{
		if (shared->books.quarantined[i].table == table || !OidIsValid(table))
			shared->books.quarantined[i].until = 0;
	}
	LWLockRelease(shared->lock);
}
