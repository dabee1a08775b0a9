/*
 * flight.h
 *		The batches that are under way.
 */
#ifndef OUTBOX_FLIGHT_H
#define OUTBOX_FLIGHT_H

#include "bgworker/publish/batch.h"

#define FLIGHT_BATCHES	16		/* at most, where the way to Redis is long */

typedef struct Flight
{
	int			n;
	size_t		bytes;			/* of these */
	Batch		batches[FLIGHT_BATCHES];	/* oldest first; the one behind
											 * them is the next to be made */
	int64	   *rows_refused;	/* room for those of one batch */
} Flight;

extern void flight_begin(Flight *flight, int batch_size);
extern int	flight_allowed(const Flight *flight, int64 round_trip);
extern void flight_add(Flight *flight);
extern void flight_remove_oldest(Flight *flight);
extern void flight_clear(Flight *flight);

#endif							/* OUTBOX_FLIGHT_H */
