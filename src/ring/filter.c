/*
 * filter.c
 *		Bloom filters: which segments certainly do not hold a key.
 *
 * A new message id is in no segment, so each look would have to visit them all.
 * The filter of a segment that is quiet, and so never changes, nearly always tells
 * that in one access to memory. It is only an optimization: where there is none, or
 * its tag is not that of the segment, the segment is looked into.
 *
 * Blocked Bloom filter: a key has all its bits in one line of the processor's
 * cache (Putze, Sanders, Singler: Cache-, hash- and space-efficient Bloom
 * filters, 2007). Keys are hashes already: their first half chooses the line,
 * their second half the bits.
 *
 * The memory of all filters of the server is reserved at its start
 * (outbox.filter_memory). PostgreSQL's dsa.c hands out pieces of it, to
 * dispatchers only; sessions find a piece by its offset. A filter is built in
 * private and published when it is whole; readers probe under the lock of their
 * database, and memory is given back only after a filter was withdrawn under
 * that lock.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

#include "src/ring/filter.h"
#include "src/settings.h"
#include "src/shared.h"

#define LINE_BITS		512		/* 64 bytes */
#define LINE_WORDS		(LINE_BITS / 64)
#define BITS_PER_KEY	16
#define BITS_SET		7		/* 9 bits of the hash for each */

#define TRANCHE			"outbox filters"

/* The filter of one segment; of no segment if lines is 0. */
typedef struct SegmentFilter
{
	uint64		tag;			/* transaction that made the segment quiet: a
								 * filter is of the keys it had then, for ever */
	Size		offset;			/* of its memory */
	uint64		lines;
} SegmentFilter;

/* The filters of a database; guarded by its lock. */
typedef struct Filters
{
	SegmentFilter segments[RING_KINDS][MAX_SEGMENTS];
	SegmentFilter building[FILTER_USES];	/* known only to the dispatcher
											 * yet; here so that its successor
											 * can free them */
} Filters;

static Filters *filters;		/* one for each entry of shared.c */
static char *memory;			/* NULL = there is none */
static dsa_area *area;			/* dispatchers only */

static Filters *filters_of(const DatabaseShared *shared);
static Size memory_size(void);
static void attach_area(void);
static dsa_pointer to_dsa(Size offset);
static uint64 *line_of(const SegmentFilter *filter, const pg_uuid_t *key);
static uint64 half_of_key(const pg_uuid_t *key, int which);
static bool line_holds(const uint64 *line, const pg_uuid_t *key);
static bool is_for(const SegmentFilter *filter, const Segment *segment);
static void withdraw_filter(DatabaseShared *shared, SegmentFilter *filter);

/* Reserves the memory; for the shmem_request_hook. */
void
filter_request(void)
{
	if (memory_size() == 0)
		return;
	RequestAddinShmemSpace(memory_size());
	RequestAddinShmemSpace(shared_capacity() * sizeof(Filters));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* Creates or finds the memory; for the shmem_startup_hook. */
void
filter_startup(void)
{
	bool		found;
	dsa_area   *created;

	if (memory_size() == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	filters = ShmemInitStruct("outbox filters", shared_capacity() * sizeof(Filters), &found);
	memory = ShmemInitStruct("outbox filter memory", memory_size(), &found);
	if (!found)
	{
		memset(filters, 0, shared_capacity() * sizeof(Filters));

		/*
		 * Never more than this, and never given back: it lives with the
		 * server.
		 */
		created = dsa_create_in_place(memory, memory_size(), GetNamedLWLockTranche(TRANCHE)->lock.tranche, NULL);
		dsa_set_size_limit(created, memory_size());
		dsa_pin(created);
		dsa_detach(created);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Finds out which segments certainly do not hold a key. A filter with another
 * tag than the segment has in `rings` is not asked.
 */
void
filters_probe(const Rings *rings, const pg_uuid_t *key, Absence *absence)
{
	DatabaseShared *shared = shared_mine();

	memset(absence, 0, sizeof(*absence));
	if (memory == NULL || shared == NULL)
		return;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int kind = RING_RECORD; kind < RING_KINDS; kind++)
	{
		const Ring *ring = &rings->ring[kind];

		for (int n = 0; n < ring->nsegments; n++)
		{
			const SegmentFilter *filter = &filters_of(shared)->segments[kind][n];

			if (is_for(filter, &ring->segments[n]) && !line_holds(line_of(filter, key), key))
				absence->segments[kind] |= 1U << n;
		}
	}
	LWLockRelease(shared->lock);
}

/* Begins a filter for a number of keys. Returns false if there is no memory for it. */
bool
filter_begin(FilterUse use, int64 keys)
{
	DatabaseShared *shared = shared_mine();
	uint64		lines = Max(1, keys * BITS_PER_KEY / LINE_BITS);
	dsa_pointer piece;
	char	   *address;

	if (memory == NULL)
		return false;
	attach_area();
	filter_abandon(use);
	piece = dsa_allocate_extended(area, lines * LINE_BITS / 8,
								  DSA_ALLOC_HUGE | DSA_ALLOC_NO_OOM | DSA_ALLOC_ZERO);
	if (!DsaPointerIsValid(piece))
		return false;
	address = dsa_get_address(area, piece);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	filters_of(shared)->building[use].offset = address - memory;
	filters_of(shared)->building[use].lines = lines;
	LWLockRelease(shared->lock);
	return true;
}

/* Adds a key to the filter that was begun. */
void
filter_add(FilterUse use, const pg_uuid_t *key)
{
	uint64	   *line = line_of(&filters_of(shared_mine())->building[use], key);
	uint64		bits = half_of_key(key, 1);

	for (int i = 0; i < BITS_SET; i++, bits >>= 9)
		line[(bits >> 6) % LINE_WORDS] |= UINT64CONST(1) << (bits & 63);
}

/* Publishes the filter that was begun, and now has all keys, for the segment with this tag. */
void
filter_publish(FilterUse use, RingKind kind, int segment, uint64 tag)
{
	DatabaseShared *shared = shared_mine();
	SegmentFilter *filter = &filters_of(shared)->segments[kind][segment];

	withdraw_filter(shared, filter);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	*filter = filters_of(shared)->building[use];
	filter->tag = tag;
	filters_of(shared)->building[use].lines = 0;
	LWLockRelease(shared->lock);
}

/* Gives up the filter that was begun, by us or by a predecessor, if any. */
void
filter_abandon(FilterUse use)
{
	DatabaseShared *shared = shared_mine();

	if (memory != NULL)
		withdraw_filter(shared, &filters_of(shared)->building[use]);
}

/* Check whether a segment has its filter. */
bool
filter_is_there(RingKind kind, int segment, const Segment *state)
{
	return memory != NULL && is_for(&filters_of(shared_mine())->segments[kind][segment], state);
}

/* Frees the filters of segments that have become something else. */
void
filters_forget_stale(const Rings *rings)
{
	DatabaseShared *shared = shared_mine();

	if (memory == NULL)
		return;
	for (int kind = 0; kind < RING_KINDS; kind++)
	{
		for (int n = 0; n < MAX_SEGMENTS; n++)
		{
			if (!is_for(&filters_of(shared)->segments[kind][n], &rings->ring[kind].segments[n]))
				withdraw_filter(shared, &filters_of(shared)->segments[kind][n]);
		}
	}
}

/* Frees all filters of a database; for one whose dispatcher or outbox is gone. */
void
filters_forget_all(DatabaseShared *shared)
{
	if (memory == NULL)
		return;
	for (int kind = 0; kind < RING_KINDS; kind++)
	{
		for (int n = 0; n < MAX_SEGMENTS; n++)
			withdraw_filter(shared, &filters_of(shared)->segments[kind][n]);
	}
	for (int use = 0; use < FILTER_USES; use++)
		withdraw_filter(shared, &filters_of(shared)->building[use]);
}

/* Returns the filters of a database. */
static Filters *
filters_of(const DatabaseShared *shared)
{
	return &filters[shared_number(shared)];
}

/* Returns how much memory outbox.filter_memory gives; at least what dsa.c needs, or 0. */
static Size
memory_size(void)
{
	Size		size = (Size) outbox_filter_memory * 1024;

	return size == 0 ? 0 : Max(size, dsa_minimum_size() + 1024 * 1024);
}

/* Maps the memory for a process that allocates in it. */
static void
attach_area(void)
{
	MemoryContext caller;

	if (area != NULL)
		return;
	caller = MemoryContextSwitchTo(TopMemoryContext);
	area = dsa_attach_in_place(memory, NULL);
	dsa_pin_mapping(area);
	MemoryContextSwitchTo(caller);
}

/* The area is one piece, so what dsa.c calls a pointer is the offset in it. */
static dsa_pointer
to_dsa(Size offset)
{
	Assert(dsa_get_address(area, (dsa_pointer) offset) == memory + offset);
	return (dsa_pointer) offset;
}

/* Returns the line that has the bits of a key. */
static uint64 *
line_of(const SegmentFilter *filter, const pg_uuid_t *key)
{
	/* The upper half of a product spreads evenly over any number of lines. */
	uint64		line = ((half_of_key(key, 0) >> 32) * filter->lines) >> 32;

	return (uint64 *) (memory + filter->offset) + line * LINE_WORDS;
}

/* Returns one of the two independent hashes that a key consists of. */
static uint64
half_of_key(const pg_uuid_t *key, int which)
{
	uint64		result;

	memcpy(&result, key->data + which * sizeof(result), sizeof(result));
	return result;
}

/* Check whether all bits of a key are set in its line. */
static bool
line_holds(const uint64 *line, const pg_uuid_t *key)
{
	uint64		bits = half_of_key(key, 1);

	for (int i = 0; i < BITS_SET; i++, bits >>= 9)
	{
		if ((line[(bits >> 6) % LINE_WORDS] & (UINT64CONST(1) << (bits & 63))) == 0)
			return false;
	}
	return true;
}

/* Check whether a filter belongs to a segment as it is now, and not to an earlier use of it. */
static bool
is_for(const SegmentFilter *filter, const Segment *segment)
{
	return filter->lines > 0 && segment->state == SEGMENT_QUIET &&
		filter->tag == U64FromFullTransactionId(segment->tx);
}

/* Withdraws a filter, under the lock, so that no reader is probing it. */
static void
withdraw_filter(DatabaseShared *shared, SegmentFilter *filter)
{
	Size		offset = filter->offset;
	bool		was_there;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	was_there = filter->lines > 0;
	filter->lines = 0;
	LWLockRelease(shared->lock);
	if (was_there)
	{
		attach_area();
		dsa_free(area, to_dsa(offset));
	}
}
