/*
 * flight.c
 *		The batches that are under way: sent, and not yet answered.
 *
 * Called by publisher.c, which makes and sends them and receives the answers.
 * Nothing here talks to Redis or reads a table.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/publish/flight.h"

#define FEW_BATCHES		2		/* one is run, the next one is there */
#define BATCH_US		2000	/* as long as Redis needs for a batch, about */
#define LARGE_BYTES		(8 * 1024 * 1024)	/* no other batch is sent behind
											 * those in flight if they have as
											 * many */

/*
 * Begins with no batch under way, and gives all batches arrays that a full batch
 * fits in; these are kept for the next time.
 */
void
flight_begin(Flight *flight, int batch_size)
{
	static int64 *room;
	static int	size;

	if (size != batch_size)
	{
		size = batch_size;
		if (room)
			pfree(room);
		room = MemoryContextAlloc(TopMemoryContext, (FLIGHT_BATCHES + 1) * size * sizeof(int64));
	}
	for (int i = 0; i < FLIGHT_BATCHES; i++)
	{
		flight->batches[i].rows = room + i * size;
		flight->batches[i].reach = size;
	}
	flight->rows_refused = room + FLIGHT_BATCHES * size;
	flight_clear(flight);
}

/*
 * Returns how many batches may be under way: as many as keep Redis busy during a
 * round trip, which is in microseconds. Large batches stay in memory until the
 * socket has taken all of them.
 */
int
flight_allowed(const Flight *flight, int64 round_trip)
{
	if (flight->bytes >= LARGE_BYTES)
		return 1;
	return Min(FEW_BATCHES + round_trip / BATCH_US, FLIGHT_BATCHES);
}

/* Adds the batch behind those that are under way: it was sent. */
void
flight_add(Flight *flight)
{
	flight->bytes += flight->batches[flight->n].bytes;
	flight->n++;
}

/* Removes the oldest batch: it was answered. Its array is free for another. */
void
flight_remove_oldest(Flight *flight)
{
	Batch		done = flight->batches[0];

	flight->n--;
	flight->bytes -= done.bytes;
	memmove(&flight->batches[0], &flight->batches[1], sizeof(Batch) * flight->n);
	flight->batches[flight->n] = done;
}

/* Removes all batches: each was answered, or will be by nobody. */
void
flight_clear(Flight *flight)
{
	flight->n = 0;
	flight->bytes = 0;
}
