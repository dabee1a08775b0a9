/*
 * window_rows.h
 *		The places of the messages of windows, in the order in which they are sent.
 */
#ifndef OUTBOX_WINDOW_ROWS_H
#define OUTBOX_WINDOW_ROWS_H

#include "storage/buffile.h"
#include "storage/itemptr.h"

/* The place of a message in the log, in 16 bytes. */
typedef struct LogRow
{
	int64		id;
	ItemPointerData tid;
#define LOG_ROW_SEGMENT_BITS	5
#define LOG_ROW_WINDOW_BITS		11
	uint16		segment:LOG_ROW_SEGMENT_BITS;
	uint16		window:LOG_ROW_WINDOW_BITS; /* the lowest bits of the number
											 * of its window */
} LogRow;

typedef struct WindowRows
{
	int			first_window;	/* LogRow.window of the first one; those of
								 * the others are greater, or begin at 0 again */
	int64		n;
	LogRow	   *memory;			/* all rows that are left, or a page of the
								 * file */
	int64		size;			/* of memory, in rows */
	BufFile    *file;			/* NULL = all rows are in memory */
	int64		page;			/* number of the first row that memory holds */
	int64		in_memory;		/* how many it holds */
} WindowRows;

extern void window_rows_add(WindowRows *rows, const LogRow *row);
extern void window_rows_sort(WindowRows *rows);
extern const LogRow *window_rows_get(WindowRows *rows, int64 n);
extern bool window_rows_have_room(const WindowRows *rows, int64 done, int64 n);
extern void window_rows_join(WindowRows *rows, int64 done, WindowRows *more);
extern void window_rows_free(WindowRows *rows);

#endif							/* OUTBOX_WINDOW_ROWS_H */
