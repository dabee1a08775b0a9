/*
 * flight.c
 *		The pages that are under way: sent, and not yet answered.
 *
 * Called by publisher.c, which makes and sends them and receives the answers.
 * Nothing here talks to Redis or reads a table.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/publish/flight.h"

#define FEW_PAGES		2		/* one is run, the next one is there */
#define PAGE_US			2000	/* as long as Redis needs for a page, about */
#define LARGE_BYTES		(8 * 1024 * 1024)	/* no other page is sent behind
											 * those in flight if they have as
											 * many */

/* Begins with no page under way. What pages have allocated is kept for the next time. */
Flight *
flight_begin(int batch_size)
{
	static Flight flight;
	static int	size;

	if (size != batch_size)
	{
		size = batch_size;
		if (flight.refused)
			pfree(flight.refused);
		flight.refused = MemoryContextAlloc(TopMemoryContext, size * sizeof(int64));
	}
	flight_clear(&flight);
	return &flight;
}

/*
 * Returns how many pages may be under way: as many as keep Redis busy during a
 * round trip, which is in microseconds. Large ones stay in memory until the
 * socket has taken all of them.
 */
int
flight_allowed(const Flight *flight, int64 round_trip)
{
	if (flight->bytes >= LARGE_BYTES)
		return 1;
	return Min(FEW_PAGES + round_trip / PAGE_US, FLIGHT_PAGES);
}

/* Adds the page behind those that are under way: it was sent. */
void
flight_add(Flight *flight)
{
	flight->bytes += flight->pages[flight->n].bytes;
	flight->n++;
}

/* Removes the oldest page: it was answered. Its memory is free for another. */
void
flight_remove_oldest(Flight *flight)
{
	MessagePage done = flight->pages[0];

	flight->n--;
	flight->bytes -= done.bytes;
	memmove(&flight->pages[0], &flight->pages[1], sizeof(MessagePage) * flight->n);
	flight->pages[flight->n] = done;
}

/* Removes all pages: each was answered, or never will be. */
void
flight_clear(Flight *flight)
{
	flight->n = 0;
	flight->bytes = 0;
}
