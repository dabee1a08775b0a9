/*
 * log_size.c
 *		Measures what the log takes on disk, and refuses messages if that is too much.
 *
 * Called by outbox_enqueue() before it writes, and by outbox.status.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/log/log.h"
#include "src/settings.h"
#include "src/table/relations.h"

static bool measure_relation(Oid oid, int64 *size);

/*
 * Returns the bytes that all segments take on disk, with indexes and TOAST tables.
 * Waits for no lock: a segment that is locked, for example while it is being
 * emptied, counts with the size that this process found last.
 */
int64
log_size(void)
{
	static int64 known[MAX_SEGMENTS];
	int64		total = 0;

	for (int n = 0; n < relations_enter()->nsegments[RING_LOG]; n++)
	{
		int64		size = 0;

		if (measure_relation(relations_enter()->segments[RING_LOG][n].table, &size))
			known[n] = size;
		total += known[n];
	}
	return total;
}

/* Adds what a relation takes, with its TOAST table and indexes. Returns false if any of them is locked. */
static bool
measure_relation(Oid oid, int64 *size)
{
	Relation	relation;
	bool		complete = true;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return false;
	relation = try_relation_open(oid, NoLock);
	if (relation)
	{
		if (RELKIND_HAS_STORAGE(relation->rd_rel->relkind))
			*size += (int64) RelationGetNumberOfBlocks(relation) * BLCKSZ;
		if (OidIsValid(relation->rd_rel->reltoastrelid))
			complete = measure_relation(relation->rd_rel->reltoastrelid, size);
		if (relation->rd_rel->relhasindex)
		{
			List	   *indexes = RelationGetIndexList(relation);

			for (int i = 0; i < list_length(indexes) && complete; i++)
				complete = measure_relation(list_nth_oid(indexes, i), size);
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
 * Raises 53400 if the log has reached outbox.max_log_size. Measures it at most once
 * a second: the limit is there to save the disk, not to be exact.
 */
void
log_size_check(void)
{
	static TimestampTz looked;
	static int64 size;
	TimestampTz now;

	if (outbox_max_log_size == 0)
		return;
	now = clock_now();
	if (now - looked > USECS_PER_SEC || log_size_is_full(size))
	{
		size = log_size();
		looked = now;
	}
	if (log_size_is_full(size))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the log of the outbox is full"),
				 errdetail("Its size is %lld kB, and \"outbox.max_log_size\" is %d kB.",
						   (long long) (size / 1024), outbox_max_log_size),
				 errhint("Column \"problem\" of the view outbox.status shows the reason.")));
}
