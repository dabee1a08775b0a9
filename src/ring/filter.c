/*
 * filter.c
 *		Bloom filters: which segments certainly do not hold a key.
 *
 * Called by record_ring.c, which asks filters and adds keys, and by the dispatcher
 * (bgworker/ring/), which makes and withdraws them.
 *
 * A new message id is in no segment, so each look would have to visit them all.
 * The filter of a segment nearly always tells that in one access to memory. It is
 * only an optimization: where there is none, or its tag is not that of the segment,
 * the segment is looked into.
 *
 * The filter of a segment that is quiet, and so never changes, is built from its
 * rows. That of a segment of records that is written was there before its first row,
 * and each session adds its key before it writes a row, under the lock on the key.
 * So a session that is told under that lock that the key is not there need not look.
 * docs/internals.md has the steps, with crashes and rotation.
 *
 * Blocked Bloom filter: a key has all its bits in one line of the processor's
 * cache (Putze, Sanders, Singler: Cache-, hash- and space-efficient Bloom
 * filters, 2007). Keys are hashes already: their first half chooses the line,
 * their second half the bits.
 *
 * The memory of all filters of the server is reserved at its start
 * (outbox.filter_memory). PostgreSQL's dsa.c hands out pieces of it, to
 * dispatchers only; sessions find a piece by its offset. A filter is published when
 * it is whole; sessions read it and add to it under the shared lock of their
 * database, and memory is given back only after a filter was withdrawn under
 * that lock.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/shmem.h"
#include "utils/dsa.h"
#include "utils/memutils.h"

#include "src/ring/filter.h"
#include "src/settings.h"
#include "src/shared.h"

#define LINE_BITS		512		/* 64 bytes */
#define WORD_BITS		32
#define LINE_WORDS		(LINE_BITS / WORD_BITS)
#define BITS_PER_KEY	16
#define BITS_SET		7		/* 9 bits of the hash for each */

#define TRANCHE			"outbox filters"

StaticAssertDecl(sizeof(pg_atomic_uint32) * BITS_PER_BYTE == WORD_BITS, "a line is one of words, all zero at first");

/* The filter of one segment; of no segment if lines is 0. */
typedef struct SegmentFilter
{
	uint64		tag;			/* transaction that brought the segment into
								 * its state: the filter has all of its keys,
								 * and gets those that are written to it */
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
static uint64 lines_for(int64 keys);
static void attach_area(void);
static dsa_pointer to_dsa(Size offset);
static pg_atomic_uint32 *line_of(const SegmentFilter *filter, const pg_uuid_t *key);
static uint64 half_of_key(const pg_uuid_t *key, int which);
static void add_key(const SegmentFilter *filter, const pg_uuid_t *key);
static bool lacks_key(const SegmentFilter *filter, const pg_uuid_t *key);
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

		for (uint32 left = ring->live; left != 0; left &= left - 1)
		{
			int			n = pg_rightmost_one_pos32(left);
			const SegmentFilter *filter = &filters_of(shared)->segments[kind][n];

			if (is_for(filter, &ring->segments[n]) && lacks_key(filter, key))
				absence->segments[kind] |= 1U << n;
		}
	}
	LWLockRelease(shared->lock);
}

/* Check whether one segment, as it is in `rings`, certainly does not hold a key. */
bool
filter_excludes(const Rings *rings, RingKind kind, int segment, const pg_uuid_t *key)
{
	DatabaseShared *shared = shared_mine();
	const SegmentFilter *filter;
	bool		excludes;

	if (memory == NULL || shared == NULL)
		return false;
	filter = &filters_of(shared)->segments[kind][segment];
	LWLockAcquire(shared->lock, LW_SHARED);
	excludes = is_for(filter, &rings->ring[kind].segments[segment]) && lacks_key(filter, key);
	LWLockRelease(shared->lock);
	return excludes;
}

/*
 * Adds a key to the filter of a segment, if it has one. Called before the row is
 * written, with the lock on the key and a lock on the segment, by everything that
 * writes one: a row of which the filter does not know would be overlooked. The tag
 * does not matter: a key too many does no harm.
 */
void
filter_note(RingKind kind, int segment, const pg_uuid_t *key)
{
	DatabaseShared *shared = shared_mine();
	const SegmentFilter *filter;

	if (memory == NULL || shared == NULL)
		return;
	filter = &filters_of(shared)->segments[kind][segment];
	LWLockAcquire(shared->lock, LW_SHARED);
	if (filter->lines > 0)
		add_key(filter, key);
	LWLockRelease(shared->lock);
}

/* Begins a filter for a number of keys. Returns false if there is no memory for it. */
bool
filter_begin(FilterUse use, int64 keys)
{
	DatabaseShared *shared = shared_mine();
	uint64		lines = lines_for(keys);
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
	add_key(&filters_of(shared_mine())->building[use], key);
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

/*
 * The segment has come from one state into another, and has no key that its filter
 * lacks. Called before sessions are told of that; until then they look into it.
 */
void
filter_keep(RingKind kind, int segment, uint64 old_tag, uint64 new_tag)
{
	DatabaseShared *shared = shared_mine();
	SegmentFilter *filter;

	if (memory == NULL)
		return;
	filter = &filters_of(shared)->segments[kind][segment];
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (filter->lines > 0 && filter->tag == old_tag)
		filter->tag = new_tag;
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

/*
 * Check whether the filter of a segment, if it has one, was made for at least half as
 * many keys as this. One that was made before the first row is too small if the segment
 * has outgrown its size; it then says of hardly any key that it is not there.
 */
bool
filter_is_large_enough(RingKind kind, int segment, int64 keys)
{
	return memory != NULL && filters_of(shared_mine())->segments[kind][segment].lines >= lines_for(keys / 2);
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

/* Returns how many lines a filter for a number of keys has. */
static uint64
lines_for(int64 keys)
{
	return Max(1, keys * BITS_PER_KEY / LINE_BITS);
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
static pg_atomic_uint32 *
line_of(const SegmentFilter *filter, const pg_uuid_t *key)
{
	/* The upper half of a product spreads evenly over any number of lines. */
	uint64		line = ((half_of_key(key, 0) >> 32) * filter->lines) >> 32;

	return (pg_atomic_uint32 *) (memory + filter->offset) + line * LINE_WORDS;
}

/* Returns one of the two independent hashes that a key consists of. */
static uint64
half_of_key(const pg_uuid_t *key, int which)
{
	uint64		result;

	memcpy(&result, key->data + which * sizeof(result), sizeof(result));
	return result;
}

/* Sets the bits of a key in its line. Other sessions may set bits of the same words meanwhile. */
static void
add_key(const SegmentFilter *filter, const pg_uuid_t *key)
{
	pg_atomic_uint32 *line = line_of(filter, key);
	uint64		bits = half_of_key(key, 1);

	for (int i = 0; i < BITS_SET; i++, bits >>= 9)
		pg_atomic_fetch_or_u32(&line[bits / WORD_BITS % LINE_WORDS], ((uint32) 1) << (bits % WORD_BITS));
}

/* Check whether a bit of a key is not set in its line. */
static bool
lacks_key(const SegmentFilter *filter, const pg_uuid_t *key)
{
	pg_atomic_uint32 *line = line_of(filter, key);
	uint64		bits = half_of_key(key, 1);

	for (int i = 0; i < BITS_SET; i++, bits >>= 9)
	{
		if ((pg_atomic_read_u32(&line[bits / WORD_BITS % LINE_WORDS]) & (((uint32) 1) << (bits % WORD_BITS))) == 0)
			return true;
	}
	return false;
}

/* Check whether a filter belongs to a segment as it is now, and not to an earlier use of it. */
static bool
is_for(const SegmentFilter *filter, const Segment *segment)
{
	return filter->lines > 0 && segment_is_live(segment) &&
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
