/*
 * window_rows.h
 *		The places of the messages of a window, in the order of their ids.
 */
#ifndef OUTBOX_WINDOW_ROWS_H
#define OUTBOX_WINDOW_ROWS_H

#include "datatype/timestamp.h"
#include "storage/buffile.h"
#include "storage/itemptr.h"
#include "utils/uuid.h"

/* The place of a message in the log. */
typedef struct LogRow
{
	int64		id;
	ItemPointerData tid;
	uint16		segment;
} LogRow;

typedef struct WindowRows
{
	int64		number;			/* of the window; -1 = nothing is collected */
	pg_uuid_t	uuid;
	TimestampTz oldest;
	int64		receipts;		/* receipts in the window; they are not among
								 * the rows */
	int64		n;
	LogRow	   *memory;			/* all rows, or a page of the file */
	int64		size;			/* of memory, in rows */
	BufFile    *file;			/* NULL = all rows are in memory */
	int64		page;			/* number of the first row that memory holds */
	int64		in_memory;		/* how many it holds */
} WindowRows;

extern void window_rows_add(WindowRows *rows, const LogRow *row);
extern void window_rows_sort(WindowRows *rows);
extern const LogRow *window_rows_get(WindowRows *rows, int64 n);
extern int64 window_rows_first_after(WindowRows *rows, int64 id);
extern void window_rows_free(WindowRows *rows);

#endif							/* OUTBOX_WINDOW_ROWS_H */
