/*
 * used_lanes.c
 *		Which hash slots of a Redis Cluster messages were ever sent to.
 *
 * Called where a connection is opened, and before a page of messages is sent. In a
 * Redis Cluster each hash slot that has a stream is a lane with a fence of its own. A
 * lane that is in use and whose fence is missing has lost its messages, which are
 * sent again; so which lanes are in use must be on disk. outbox.lane has them, but
 * no positions: where each lane is, its fence says.
 *
 * The order of steps when a page has messages for a lane that is not in use yet:
 *
 *	 1. the fence of the lane is claimed in Redis, at the end of the window that was
 *		sent last (or where it is, if it names a later one that is kept)
 *	 2. used_lanes_add(), and for all new lanes of the page used_lanes_note()
 *	 3. transaction_confirm(), where a synchronous standby is waited for
 *	 4. only then anything of the page is sent, to whichever lane
 *
 *	 died before 2.		no process knows the lane, and no fence has passed the window; the
 *						next connection begins before it, and the fence is found
 *	 died before 4.		the fence is at the end of the window before: nothing is missing
 *
 * A lane that is noted without a fence would look like one whose node was emptied:
 * so 1. comes before 2. If only what is for the new lane waited for 2., other lanes
 * would pass the window, and nothing would tell that one was missing.
 *
 * The rows are about the instance whose id is in the names of the fences. They are
 * not dumped, as that is not; a copy of a database, which gets another id, forgets
 * them. pg_upgrade keeps both. With another outbox.redis_url they stay: the lanes have
 * no fence there, as a single Redis would have none.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"

#include "bgworker/lane/used_lanes.h"
#include "bgworker/process/transaction.h"
#include "src/kill_point.h"
#include "src/redis_cluster/hash_slot.h"
#include "src/table/own_table.h"
#include "src/table/relations.h"

static bool in_use[HASH_SLOTS];
static int	added[HASH_SLOTS];	/* lanes that are not on disk yet */
static int	nadded;

/* Reads which lanes are in use. Needs an open transaction. The table may have been written to by hand. */
void
used_lanes_load(void)
{
	memset(in_use, 0, sizeof(in_use));
	nadded = 0;
	own_table_require(relations_enter()->lane, OWN_LANE);
	SPI_connect();
	(void) transaction_query("SELECT slot FROM outbox.lane", 0, NULL, NULL, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		int			slot = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));

		if (slot < 0 || slot >= HASH_SLOTS)
			elog(ERROR, "invalid slot in outbox.lane: %d", slot);
		in_use[slot] = true;
	}
	SPI_finish();
}

/* Forgets all, for an instance that has sent nothing yet. Needs an open transaction. */
void
used_lanes_forget_all(void)
{
	(void) transaction_execute("DELETE FROM outbox.lane", 0, NULL, NULL, NULL);
}

/* Check whether a lane is in use, on disk or since it was added. */
bool
used_lanes_include(int slot)
{
	return in_use[slot];
}

/* Returns the first lane in use from that slot on; HASH_SLOTS if there is none. */
int
used_lanes_next(int slot)
{
	while (slot < HASH_SLOTS && !in_use[slot])
		slot++;
	return slot;
}

/* Adds a lane whose fence was claimed. It must be noted before anything is sent. */
void
used_lanes_add(int slot)
{
	if (in_use[slot])
		return;
	in_use[slot] = true;
	added[nadded++] = slot;
}

/*
 * Writes the lanes that were added to disk, in a transaction of its own. Nothing of the
 * page may be sent before transaction_confirm() says that the standby has them.
 * Returns false if the extension is being dropped; the next connection then reads
 * what is on disk.
 */
bool
used_lanes_note(void)
{
	Datum	   *slots;
	ArrayType  *array;

	if (nadded == 0)
		return true;
	KILL_POINT("lane_claimed");
	if (!transaction_begin("noting hash slots"))
		return false;
	slots = palloc(nadded * sizeof(Datum));
	for (int i = 0; i < nadded; i++)
		slots[i] = Int32GetDatum(added[i]);
	array = construct_array(slots, nadded, INT4OID, sizeof(int32), true, TYPALIGN_INT);
	(void) transaction_execute("INSERT INTO outbox.lane SELECT pg_catalog.unnest($1) ON CONFLICT DO NOTHING",
							   1, (Oid[]) {INT4ARRAYOID}, (Datum[]) {PointerGetDatum(array)}, NULL);
	transaction_commit();
	nadded = 0;
	KILL_POINT("lane_noted");
	return true;
}
