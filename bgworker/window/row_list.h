/*
 * row_list.h
 *		A list of rows of the log, in the order of their windows and ids.
 */
#ifndef OUTBOX_ROW_LIST_H
#define OUTBOX_ROW_LIST_H

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

typedef struct RowList
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
} RowList;

extern void row_list_add(RowList *rows, const LogRow *row);
extern void row_list_sort(RowList *rows);
extern const LogRow *row_list_get(RowList *rows, int64 n);
extern bool row_list_have_room(const RowList *rows, int64 done, int64 n);
extern void row_list_join(RowList *rows, int64 done, RowList *more);
extern void row_list_free(RowList *rows);

#endif							/* OUTBOX_ROW_LIST_H */
