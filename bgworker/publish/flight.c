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
