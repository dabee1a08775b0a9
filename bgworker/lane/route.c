/*
 * route.c
 *		To which stream a message goes.
 *
 * Called by page.c, command.c and lanes.c. It reads what is in memory of the settings of
 * destinations, and connects to nothing. For all messages of a page the answer must be
 * the same as long as the page is being made: settings are read between pages.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/lane/mapping.h"
#include "bgworker/lane/route.h"
#include "src/log/partition.h"

/* Returns the route of a message in a window; it is valid until the settings of destinations are read again. */
Route
route_find(const Message *message, int64 window)
{
	int			partitions;
	Route		route = route_of_destination(message->dest, window, &partitions);

	if (partitions > 0)
		route.partition = partition_of(message, partitions);
	return route;
}

/* The same for all messages of a destination, without a partition. *partitions is how many it has; 0 = one stream. */
Route
route_of_destination(const text *dest, int64 window, int *partitions)
{
	Route		route = {.destination = destination_find(dest), .partition = -1};

	*partitions = 0;
	if (mapping_is_kept())
	{
		const Mapping *mapping = mapping_find(dest, window);

		route.stream = mapping ? mapping->stream : NULL;
		*partitions = mapping ? mapping->partitions : 0;
	}
	else if (route.destination)
	{
		route.stream = route.destination->stream;
		*partitions = route.destination->partitions;
	}
	return route;
}

/* Writes the key of the stream of a message, as UTF-8. */
void
route_write_stream(const Route *route, const Message *message, EntrySink sink, void *arg)
{
	const text *name = route->stream ? route->stream : message->dest;

	if (route->partition < 0)
		field_write_text(name, sink, arg);
	else
	{
		static StringInfoData stream;

		if (stream.data == NULL)
		{
			MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

			initStringInfo(&stream);
			MemoryContextSwitchTo(caller);
		}
		partition_write_stream(name, route->partition, &stream);
		field_write_utf8(stream.data, stream.len, sink, arg);
	}
}
