/*
 * duplicate_count.c
 *		Counts the duplicates that were refused, in all and for each endpoint.
 *
 * Called by open_message.c, and by endpoint_view.c for outbox.endpoints. The counters
 * are in shared memory and start at 0 with the server. An endpoint takes a
 * counter with its first duplicate and keeps it; there are COUNTED_ENDPOINTS of
 * them, and further endpoints are counted in the total only. Nothing here
 * waits.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "src/claim/duplicate_count.h"
#include "src/shared.h"

static EndpointCounter *find_counter(DatabaseShared *shared, const char *endpoint, bool create);

/* Counts one duplicate of an endpoint. */
void
duplicate_count_add(const char *endpoint)
{
	DatabaseShared *shared = shared_mine();
	EndpointCounter *counter;

	if (shared == NULL)
		return;
	pg_atomic_fetch_add_u64(&shared->duplicates, 1);
	counter = find_counter(shared, endpoint, true);
	if (counter)
		pg_atomic_fetch_add_u64(&counter->duplicates, 1);
}

/* Sets how many duplicates an endpoint had. Returns false if that is not known. */
bool
duplicate_count_of(const char *endpoint, uint64 *count)
{
	DatabaseShared *shared = shared_mine();
	EndpointCounter *counter = shared ? find_counter(shared, endpoint, false) : NULL;

	*count = 0;
	if (counter && pg_atomic_read_u64(&counter->endpoint) != 0)
		*count = pg_atomic_read_u64(&counter->duplicates);
	return counter != NULL;
}

/*
 * Returns the counter of an endpoint, or the free one that it would get; NULL
 * if all are taken. The search begins at a place that depends on the name, and
 * wraps around.
 */
static EndpointCounter *
find_counter(DatabaseShared *shared, const char *endpoint, bool create)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) endpoint, strlen(endpoint), 0);

	hash = Max(hash, 1);
	for (int i = 0; i < COUNTED_ENDPOINTS; i++)
	{
		EndpointCounter *counter = &shared->counters[(hash + i) % COUNTED_ENDPOINTS];
		uint64		found = 0;

		if (create)
			(void) pg_atomic_compare_exchange_u64(&counter->endpoint, &found, hash);
		else
			found = pg_atomic_read_u64(&counter->endpoint);
		if (found == 0 || found == hash)
			return counter;
	}
	return NULL;
}
