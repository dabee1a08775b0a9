/*
 * log_size.c
 *		Measures what the log takes on disk, and refuses messages if that is too much.
 *
 * Called by outbox_enqueue() before it writes, and by outbox.status.
 */
#include "postgres.h"

#include "access/relation.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/log/log.h"
#include "src/settings.h"
#include "src/table/relations.h"

static bool measure(Oid oid, int64 *size);

/*
 * Returns the bytes of all segments on disk, indexes and TOAST included. It waits for no lock:
 * for a segment that is locked, as while it is being emptied, it counts the size
 * that it had when this process looked before.
 */
int64
log_size(void)
{
	static int64 known[MAX_SEGMENTS];
	int64		total = 0;

	for (int n = 0; n < relations_enter()->nsegments[RING_LOG]; n++)
	{
		int64		size = 0;

		if (measure(relations_enter()->segments[RING_LOG][n].table, &size))
			known[n] = size;
		total += known[n];
	}
	return total;
}

/* Adds what a relation takes, with its TOAST table and indexes. Returns false if any of them is locked. */
static bool
measure(Oid oid, int64 *size)
{
	Relation	relation;
	bool		complete = true;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return false;
	relation = try_relation_open(oid, NoLock);
	if (relation)
	{
		*size += (int64) RelationGetNumberOfBlocks(relation) * BLCKSZ;
		if (OidIsValid(relation->rd_rel->reltoastrelid))
			complete = measure(relation->rd_rel->reltoastrelid, size);
		if (relation->rd_rel->relhasindex)
		{
			List	   *indexes = RelationGetIndexList(relation);

			for (int i = 0; i < list_length(indexes) && complete; i++)
				complete = measure(list_nth_oid(indexes, i), size);
			list_free(indexes);
		}
		relation_close(relation, NoLock);
	}
	UnlockRelationOid(oid, AccessShareLock);
	return complete;
}

/* Check whether a log of that size has reached outbox.max_log_size. */
bool
log_size_is_full(int64 size)
{
	return outbox_max_log_size != 0 && size / 1024 >= outbox_max_log_size;
}

/*
 * Raises 53400 if the log is larger than outbox.max_log_size. Looks once a
 * second at the most: the limit is there to save the disk, not to be exact.
 */
void
log_size_check(void)
{
	static TimestampTz looked;
	static int64 size;
	TimestampTz now = clock_now();

	if (outbox_max_log_size == 0)
		return;
	if (now - looked > USECS_PER_SEC || log_size_is_full(size))
	{
		size = log_size();
		looked = now;
	}
	if (log_size_is_full(size))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the log of the outbox is full"),
				 errdetail("It has %lld kB; \"outbox.max_log_size\" is %d kB.",
						   (long long) (size / 1024), outbox_max_log_size),
				 errhint("The column \"problem\" of outbox.status says why.")));
}
