/*
 * sorted_rows.h
 *		A list of rows of the log, in the order of their windows and ids.
 */
#ifndef OUTBOX_SORTED_ROWS_H
#define OUTBOX_SORTED_ROWS_H

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

typedef struct SortedRows
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
} SortedRows;

extern void sorted_rows_add(SortedRows *rows, const LogRow *row);
extern void sorted_rows_sort(SortedRows *rows);
extern const LogRow *sorted_rows_get(SortedRows *rows, int64 n);
extern bool sorted_rows_have_room(const SortedRows *rows, int64 done, int64 n);
extern void sorted_rows_join(SortedRows *rows, int64 done, SortedRows *more);
extern void sorted_rows_free(SortedRows *rows);

#endif							/* OUTBOX_SORTED_ROWS_H */
