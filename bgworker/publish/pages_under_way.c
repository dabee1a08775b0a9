/*
 * pages_under_way.c
 *		The pages that are under way: sent, and not yet answered.
 *
 * Called by publisher.c, which makes and sends them and receives the answers.
 * Nothing here talks to Redis or reads a table.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/publish/pages_under_way.h"

#define FEW_PAGES		2		/* one is run, the next one is there */
#define PAGE_US			2000	/* as long as Redis needs for a page, about */
#define LARGE_BYTES		(8 * 1024 * 1024)	/* no other page is sent behind
											 * those under way if they have as
											 * many */

/* Begins with no page under way. What pages have allocated is kept for the next time. */
PagesUnderWay *
pages_under_way_begin(int batch_size)
{
	static PagesUnderWay under_way;
	static int	size;

	if (size != batch_size)
	{
		size = batch_size;
		if (under_way.refused)
			pfree(under_way.refused);
		under_way.refused = MemoryContextAlloc(TopMemoryContext, size * sizeof(int64));
	}
	pages_under_way_clear(&under_way);
	return &under_way;
}

/*
 * Returns how many pages may be under way: as many as keep Redis busy during a
 * round trip, which is in microseconds. Large ones stay in memory until the
 * socket has taken all of them.
 */
int
pages_under_way_allowed(const PagesUnderWay *under_way, int64 round_trip)
{
	if (under_way->bytes >= LARGE_BYTES)
		return 1;
	return Min(FEW_PAGES + round_trip / PAGE_US, MAX_PAGES_UNDER_WAY);
}

/* Adds the page behind those that are under way: it was sent. */
void
pages_under_way_add(PagesUnderWay *under_way)
{
	under_way->bytes += under_way->pages[under_way->n].bytes;
	under_way->n++;
}

/* Removes the oldest page: it was answered. Its memory is free for another. */
void
pages_under_way_remove_oldest(PagesUnderWay *under_way)
{
	MessagePage done = under_way->pages[0];

	under_way->n--;
	under_way->bytes -= done.bytes;
	memmove(&under_way->pages[0], &under_way->pages[1], sizeof(MessagePage) * under_way->n);
	under_way->pages[under_way->n] = done;
}

/* Removes all pages: each was answered, or never will be. */
void
pages_under_way_clear(PagesUnderWay *under_way)
{
	under_way->n = 0;
	under_way->bytes = 0;
}
