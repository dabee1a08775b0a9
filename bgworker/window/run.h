/*
 * run.h
 *		The windows that are sent one after the other, and their messages.
 */
#ifndef OUTBOX_RUN_H
#define OUTBOX_RUN_H

#include "bgworker/window/sorted_rows.h"
#include "src/log/window_row.h"

#define RUN_WINDOWS		(1 << LOG_ROW_WINDOW_BITS)	/* a run has fewer */

/* A message of a window. Windows are sent in the order of their numbers, their messages in that of their ids. */
typedef struct WindowPlace
{
	int64		window;			/* number */
	int64		id;				/* of the message; PG_INT64_MAX = behind all */
} WindowPlace;

typedef struct RunWindow
{
	pg_uuid_t	uuid;
	int64		end;			/* the row behind its last one */
} RunWindow;

/*
 * Row numbers count from the first row that the run ever had; rows that are no
 * longer needed may be gone.
 */
typedef struct Run
{
	int64		last;			/* number of its last window; 0 = it is empty */
	int64		done;			/* first row that is still needed */
	SortedRows	rows;
	RunWindow	windows[RUN_WINDOWS];	/* by number, modulo RUN_WINDOWS */
} Run;

/* What a window has in the log. */
typedef struct WindowPart
{
	int64		number;
	pg_uuid_t	uuid;
	int64		messages;
} WindowPart;

extern void run_clear(Run *run);
extern bool run_has_room(const Run *run, int64 sent, int64 windows, int64 messages);
extern void run_append(Run *run, SortedRows *rows, const WindowPart *parts, int nparts);
extern void run_collect(SortedRows *rows, const Window *before, const Window *windows, int nwindows, WindowPart *parts);
extern const RunWindow *run_window(const Run *run, int64 number);
extern const LogRow *run_row(Run *run, int64 row);
extern WindowPlace run_place(Run *run, int64 row);
extern WindowPlace run_place_of(const Run *run, const LogRow *row);
extern bool run_window_ends(Run *run, int64 row);
extern int64 run_first_after(Run *run, WindowPlace place);
extern int64 run_sent_upto(const Run *run, int64 sent, int64 row);

/* Check whether a place comes before another one. */
static inline bool
place_precedes(WindowPlace a, WindowPlace b)
{
	return a.window < b.window || (a.window == b.window && a.id < b.id);
}

/* Returns the place behind all messages of a window. */
static inline WindowPlace
place_at_end(int64 window)
{
	return (WindowPlace) {.window = window, .id = PG_INT64_MAX};
}

#endif							/* OUTBOX_RUN_H */
