/*
 * settled_stores.c
 *		Since when no deduplication store has lost ids.
 *
 * Called by propagation.c and store_propagation.c. Nothing is emptied until all stores have had
 * their watermarks for outbox.replay_window since they were first seen, or had lost ids.
 * A dispatcher that restarts more often than that would never empty anything. So what it
 * has seen is left in shared memory for its successor: a hash of the watermarks that were
 * written last, and since when the stores are settled. As each addition changes a
 * watermark, a successor that finds the same ones knows that nothing was lost meanwhile.
 *
 *	 died after an addition, before the note	the hash is another one: the successor waits
 *	 a loss is noticed			the note is removed before anything is added again, for by
 *								that the watermarks may become what they were
 *	 the first addition comes before all stores were seen		the same
 *	 the whole server			the note is gone
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "bgworker/propagate/settled_stores.h"
#include "bgworker/propagate/store_propagation.h"
#include "src/clock.h"
#include "src/settings.h"
#include "src/shared.h"

static bool is_taken_over;		/* what our predecessor has left, if it was of
								 * any use */
static uint64 noted;			/* hash that was noted last; 0 = none */

static uint64 hash_of_watermarks(void);
static void take_over(StoresSeen *seen, uint64 watermarks);

/* Check whether enough time has passed since a store may have lost ids. */
bool
settled_stores_are_all(void)
{
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (store->catching_up ||
			(store->knows_watermark && clock_now() - store->settled_at < outbox_replay_window * USECS_PER_SEC))
			return false;
	}
	return true;
}

/* Leaves what is known now to our successor. When all stores were seen first, what our predecessor has left holds if they have the same watermarks. */
void
settled_stores_note(void)
{
	StoresSeen *seen = &shared_mine()->stores;
	uint64		watermarks = hash_of_watermarks();

	if (watermarks == 0 || watermarks == noted)
		return;
	noted = watermarks;
	LWLockAcquire(shared_mine()->lock, LW_EXCLUSIVE);
	if (!is_taken_over)
		take_over(seen, watermarks);
	seen->watermarks = watermarks;
	seen->settled_at = 0;
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
		seen->settled_at = Max(seen->settled_at, store->settled_at);
	LWLockRelease(shared_mine()->lock);
}

/* Removes it: a store has lost ids. */
void
settled_stores_forget(void)
{
	is_taken_over = true;
	noted = 0;
	LWLockAcquire(shared_mine()->lock, LW_EXCLUSIVE);
	shared_mine()->stores = (StoresSeen) {0};
	LWLockRelease(shared_mine()->lock);
}

/* Must be called before an addition to a store: if not all were seen yet, it is not found out any more whether they have lost ids. */
void
settled_stores_expect_addition(void)
{
	if (!is_taken_over)
		settled_stores_forget();
}

/* Returns a hash of which stores there are, and what they must have; 0 if there is none, or one was not seen yet, or is given ids again that it has lost. */
static uint64
hash_of_watermarks(void)
{
	uint64		all = 0;

	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
	{
		if (!store->sound || store->catching_up)
			return 0;
		if (store->knows_watermark)
			all ^= hash_bytes_extended((const unsigned char *) store->url, strlen(store->url),
									   hash_bytes_extended((const unsigned char *) &store->watermarks, sizeof(StoreWatermarks), 0));
	}
	return all;
}

/* Lets the stores be settled since when our predecessor has seen them so, if they have the watermarks that it has written. */
static void
take_over(StoresSeen *seen, uint64 watermarks)
{
	is_taken_over = true;
	if (seen->watermarks != watermarks)
		return;
	for (StorePropagation *store = store_propagation_first(); store; store = store->next)
		store->settled_at = Min(store->settled_at, seen->settled_at);
}
