/*
 * route.c
 *		To which stream a message goes.
 *
 * Called by page.c, forbidden.c, command.c and lanes.c. It reads what is in memory of the settings of
 * destinations, and connects to nothing. For all messages of a page the answer must be
 * the same as long as the page is being made: settings are read between pages.
 *
 * Where a message goes must be the same whenever its window is read: in a single Redis that
 * does not matter, for what it has lost, all behind it is lost as well. In a cluster
 *
 *	 most messages			by the mapping of their window (stream_mapping.c)
 *	 deferred, then returned	by that of the window that they are returned in
 *	 ... that were lost before	to the stream that they were in, if others have followed
 *								by now: its name is kept with them (route_keep())
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/lane/route.h"
#include "bgworker/lane/stream_mapping.h"
#include "src/compat.h"
#include "src/stream/partition.h"

static void write_name(const Route *route, const Message *message, StringInfo name);

/* Returns the route of a message in a window; it is valid until the settings of destinations are read again. */
Route
route_find(const Message *message, int64 window)
{
	int			partitions;
	Route		route = route_of_destination(message->dest, window, &partitions);

	if (stream_mapping_is_kept() && message->stream)
		route.stream = message->stream;
	else if (partitions > 0)
		route.partition = partition_of(message, partitions);
	return route;
}

/* The same for all messages of a destination, without a partition. *partitions is how many it has; 0 = one stream. */
Route
route_of_destination(const text *dest, int64 window, int *partitions)
{
	Route		route = {.destination = destination_find(dest), .partition = -1};

	*partitions = 0;
	if (stream_mapping_is_kept())
	{
		const StreamMapping *mapping = stream_mapping_find(dest, window);

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

/*
 * Has a message that is about to be deferred keep its stream, if it was sent there by a
 * mapping that is over: Redis has lost it, and where messages go now is one of a later
 * message of its key. `window` is the window that it is in. The name is palloc'd.
 */
void
route_keep(const Route *route, Message *message, int64 window, int64 published)
{
	StringInfoData stream;

	if (message->stream || !stream_mapping_is_kept() || !stream_mapping_is_over(message->dest, window, published))
		return;
	initStringInfo(&stream);
	write_name(route, message, &stream);
	message->stream = cstring_to_text_with_len(stream.data, stream.len);
}

/* Writes the key of the stream of a message, as UTF-8. */
void
route_write_stream(const Route *route, const Message *message, EntrySink sink, void *arg)
{
	static StringInfoData stream;

	if (route->partition < 0)
	{
		field_write_text(route->stream ? route->stream : message->dest, sink, arg);
		return;
	}
	if (stream.data == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		initStringInfo(&stream);
		MemoryContextSwitchTo(caller);
	}
	write_name(route, message, &stream);
	field_write_utf8(stream.data, stream.len, sink, arg);
}

/* Writes the same in the encoding of the database. */
static void
write_name(const Route *route, const Message *message, StringInfo name)
{
	const text *stream = route->stream ? route->stream : message->dest;

	resetStringInfo(name);
	if (route->partition >= 0)
		partition_write_stream(stream, route->partition, name);
	else
		appendBinaryStringInfo(name, VARDATA_ANY(stream), VARSIZE_ANY_EXHDR(stream));
}
