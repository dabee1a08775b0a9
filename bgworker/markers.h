/*
 * markers.h
 *		Reads the markers of windows, page by page.
 */
#ifndef OUTBOX_MARKERS_H
#define OUTBOX_MARKERS_H

#include "bgworker/window_rows.h"
#include "src/log.h"

/* Where somebody is who reads markers; all zero = at the beginning. */
typedef struct MarkerReader
{
	bool		collected;
	WindowRows	rows;			/* of the markers */
	int64		next;			/* of these */
	int64		upto;			/* newest of the windows that they are of */
	int64		last;			/* the same, as it is kept */
	pg_uuid_t	uuid;			/* of that */
} MarkerReader;

typedef enum MarkerResult
{
	MARKERS_MORE,
	MARKERS_ENDED,
	MARKERS_REFUSED				/* the extension is being dropped */
} MarkerResult;

/* Takes a marker in; returns false when it has enough. */
typedef bool (*MarkerVisit) (const Message *marker, void *arg);

extern MarkerResult markers_read(MarkerReader *reader, int64 from, int64 upto, MarkerVisit visit, void *arg);
extern void markers_forget(MarkerReader *reader);

#endif							/* OUTBOX_MARKERS_H */
