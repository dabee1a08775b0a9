/*
 * targets.c
 *		Where the ids of each endpoint are propagated to.
 *
 * Used by propagation.c, which reads the endpoints now and then, and by store_propagation.c; the
 * bookkeeper has only the hash from here.
 * What a store gets is told by this list alone: if receipts were compared with endpoints as they
 * are at that moment, what a change leaves out would not be known when it is taken back
 * before they are listed.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "bgworker/propagate/targets.h"

/* The targets of one reading of the endpoints. */
typedef struct Listing
{
	List	   *targets;
	MemoryContext context;		/* has these; NULL = never read */
} Listing;

static Listing now;
static Listing before;			/* while endpoints are listed */

static const Target *find_in(const List *targets, const char *endpoint, int *place);

/* Returns a hash of an endpoint and what it has. To be added up: the order of endpoints does not matter. */
uint64
target_hash(const char *endpoint, const char *store, Oid table)
{
	char	   *text = psprintf("%u %s %s", table, store, endpoint);
	uint64		hash = hash_bytes_extended((const unsigned char *) text, strlen(text), 0);

	pfree(text);
	return hash;
}

/* Must be called before all endpoints are given to targets_add(). */
void
targets_begin_listing(void)
{
	before = now;
	now.targets = NIL;
	now.context = AllocSetContextCreate(TopMemoryContext, "outbox targets", ALLOCSET_SMALL_SIZES);
}

/* Adds a copy. */
void
targets_add(const Target *target)
{
	MemoryContext caller = MemoryContextSwitchTo(now.context);
	Target	   *copy = palloc(sizeof(Target));

	*copy = *target;
	copy->endpoint = pstrdup(target->endpoint);
	now.targets = lappend(now.targets, copy);
	MemoryContextSwitchTo(caller);
}

/* Must be called when all were added: forgets what was listed before. */
void
targets_end_listing(void)
{
	if (before.context)
		MemoryContextDelete(before.context);
	before = (Listing) {NIL, NULL};
}

/* Returns what an endpoint has; NULL = it is not there. Most receipts are of the endpoint of the one before. */
const Target *
target_find(const char *endpoint)
{
	static int	recent;

	return find_in(now.targets, endpoint, &recent);
}

/*
 * Returns what the endpoint that is added next had when they were listed before; NULL = it was
 * not there. Rows of endpoints seldom change their places.
 */
const Target *
target_before(const char *endpoint)
{
	int			place = list_length(now.targets);

	return find_in(before.targets, endpoint, &place);
}

/* Finds the target of an endpoint; begins with that at a place, and tells its place. */
static const Target *
find_in(const List *targets, const char *endpoint, int *place)
{
	int			n = list_length(targets);

	for (int i = 0; i < n; i++)
	{
		int			at = (*place + i) % n;
		const Target *target = list_nth(targets, at);

		if (strcmp(target->endpoint, endpoint) != 0)
			continue;
		*place = at;
		return target;
	}
	return NULL;
}
