/*
 * destination_set.c
 *		A set of destinations, of a fixed size.
 *
 * Called by the dispatcher (report.c), which adds those of which it has left out messages,
 * and by outbox_wait(). It is a Bloom filter of two bits for each name: so it may seem to
 * include a destination that was not added, and never lacks one that was. It may be in
 * shared memory, and locks nothing.
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "src/compat.h"
#include "src/destination_set.h"

#define NHASHES		2

static uint32 bit_of(const text *dest, int n);

/* Adds a destination. */
void
destination_set_add(DestinationSet *set, const text *dest)
{
	for (int n = 0; n < NHASHES; n++)
	{
		uint32		bit = bit_of(dest, n);

		set->bits[bit / BITS_PER_BYTE] |= 1 << bit % BITS_PER_BYTE;
	}
}

/* Check whether a destination was added, or others that have the same bits. */
bool
destination_set_includes(const DestinationSet *set, const text *dest)
{
	for (int n = 0; n < NHASHES; n++)
	{
		uint32		bit = bit_of(dest, n);

		if ((set->bits[bit / BITS_PER_BYTE] & 1 << bit % BITS_PER_BYTE) == 0)
			return false;
	}
	return true;
}

/* Returns the n-th bit of a destination. */
static uint32
bit_of(const text *dest, int n)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(dest), VARSIZE_ANY_EXHDR(dest), n);

	return hash % (DESTINATION_SET_BYTES * BITS_PER_BYTE);
}
