/*
 * flight.h
 *		The pages that are under way.
 */
#ifndef OUTBOX_FLIGHT_H
#define OUTBOX_FLIGHT_H

#include "bgworker/publish/page.h"

#define FLIGHT_PAGES	16		/* at most, where the way to Redis is long */

typedef struct Flight
{
	int			n;
	size_t		bytes;			/* of these */
	MessagePage pages[FLIGHT_PAGES];	/* oldest first; the one behind them
										 * is the next to be made */
	int64	   *refused;		/* room for the places of a batch's messages
								 * that were refused */
} Flight;

extern Flight *flight_begin(int batch_size);
extern int	flight_allowed(const Flight *flight, int64 round_trip);
extern void flight_add(Flight *flight);
extern void flight_remove_oldest(Flight *flight);
extern void flight_clear(Flight *flight);

#endif							/* OUTBOX_FLIGHT_H */
