/*
 * route.h
 *		To which stream a message goes.
 */
#ifndef OUTBOX_ROUTE_H
#define OUTBOX_ROUTE_H

#include "bgworker/defer/destination_settings.h"

typedef struct Route
{
	const Destination *destination; /* its settings; NULL = it has none */
	const text *stream;			/* NULL = the name of the destination */
	int			partition;		/* of its streams; -1 = it has one */
} Route;

extern Route route_find(const Message *message, int64 window);
extern Route route_of_destination(const text *dest, int64 window, int *partitions);
extern void route_keep(const Route *route, Message *message, int64 window, int64 published);
extern void route_write_stream(const Route *route, const Message *message, EntrySink sink, void *arg);

#endif							/* OUTBOX_ROUTE_H */
