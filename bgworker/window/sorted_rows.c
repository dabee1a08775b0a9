/*
 * sorted_rows.c
 *		A list of rows of the log, in the order of their windows and ids.
 *
 * Called by run.c and window_opening.c for messages, and by receipts.c. Most
 * windows are small. But a transaction may enqueue any number of messages, and
 * everything that was enqueued while dispatch was off is in one window. Memory
 * must stay bounded, so more than MEMORY_ROWS rows are sorted on disk:
 *
 *	 memory full --> sorted, appended to a temporary file as a piece
 *	 no more rows --> all pieces are merged into another file, which is read in
 *					  pages from then on, in any order
 *
 * Rows and file outlive the transaction in which they were collected. The file
 * is removed when the process ends.
 */
#include "postgres.h"

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "bgworker/window/sorted_rows.h"

#define FIRST_ROWS		1024
#define MEMORY_ROWS		(256 * 1024)	/* 4 MB */
#define PAGE_ROWS		4096	/* 64 kB */

/* A sorted piece of the first file. */
typedef struct Piece
{
	BufFile    *file;
	LogRow	   *rows;			/* rows that were read and not merged yet */
	int64		n;
	int64		next;			/* of these, the next to merge */
	int64		size;			/* how many may be read at once */
	int64		at;				/* row of the file to be read next */
	int64		end;
} Piece;

/* What is merged. */
typedef struct Merge
{
	SortedRows *rows;
	Piece	   *pieces;
} Merge;

static void grow_or_spill(SortedRows *rows);
static pg_noinline void load_page(SortedRows *rows, int64 n);
static void grow(SortedRows *rows);
static void sort_memory(SortedRows *rows);
static int	compare_rows(const void *a, const void *b, void *arg);
static void spill(SortedRows *rows);
static BufFile *create_file(void);
static void write_rows(BufFile *file, LogRow *rows, int64 n);
static void read_rows(BufFile *file, int64 from, LogRow *rows, int64 n);
static BufFile *merge(SortedRows *rows);
static void merge_pieces(Merge *merge, int npieces, LogRow *out, int64 out_size, BufFile *merged);
static bool refill(Piece *piece);
static int	compare_pieces(Datum a, Datum b, void *arg);

/* Adds a row, in any order. Needs an open transaction. */
void
sorted_rows_add(SortedRows *rows, const LogRow *row)
{
	if (rows->in_memory == rows->size)
		grow_or_spill(rows);
	rows->memory[rows->in_memory++] = *row;
	rows->n++;
}

/* Sorts the rows; none may be added after that. Needs an open transaction. */
void
sorted_rows_sort(SortedRows *rows)
{
	BufFile    *merged;

	if (rows->file == NULL)
	{
		sort_memory(rows);
		return;
	}
	spill(rows);
	merged = merge(rows);
	BufFileClose(rows->file);
	rows->file = merged;
	pfree(rows->memory);
	rows->size = PAGE_ROWS;
	rows->memory = MemoryContextAlloc(TopMemoryContext, rows->size * sizeof(LogRow));
	rows->in_memory = 0;
}

/* Returns row n, counted from 0; it is valid until the next call. Must be one that is left. */
const LogRow *
sorted_rows_get(SortedRows *rows, int64 n)
{
	if (n < rows->page || n >= rows->page + rows->in_memory)
		load_page(rows, n);
	return &rows->memory[n - rows->page];
}

/* Reads the page of the file that row n is in. */
static pg_noinline void
load_page(SortedRows *rows, int64 n)
{
	int64		page = n - n % PAGE_ROWS;
	int64		in_page = Min(PAGE_ROWS, rows->n - page);

	/*
	 * An ERROR may be caught by the caller, and must not leave rows of
	 * another page here.
	 */
	rows->in_memory = 0;
	read_rows(rows->file, page, rows->memory, in_page);
	rows->page = page;
	rows->in_memory = in_page;
}

/* Check whether n rows can be added to those from row `done` on, the others not being needed any more. */
bool
sorted_rows_have_room(const SortedRows *rows, int64 done, int64 n)
{
	return rows->file == NULL && rows->n - done + n <= MEMORY_ROWS;
}

/*
 * Takes over other sorted rows, which come behind all of these. There must be
 * room. Rows before `done` may be given up.
 */
void
sorted_rows_join(SortedRows *rows, int64 done, SortedRows *more)
{
	int64		gone = done - rows->page;

	Assert(more->file == NULL && sorted_rows_have_room(rows, done, more->n));
	if (rows->in_memory + more->n > rows->size)
	{
		rows->in_memory -= gone;
		rows->page = done;
		if (rows->in_memory > 0)
			memmove(rows->memory, rows->memory + gone, rows->in_memory * sizeof(LogRow));
		while (rows->in_memory + more->n > rows->size)
			grow(rows);
	}
	if (more->n > 0)
		memcpy(rows->memory + rows->in_memory, more->memory, more->n * sizeof(LogRow));
	rows->in_memory += more->n;
	rows->n += more->n;
	sorted_rows_free(more);
}

/* Frees all memory and the file. No rows are collected after that. */
void
sorted_rows_free(SortedRows *rows)
{
	if (rows->memory)
		pfree(rows->memory);
	if (rows->file)
		BufFileClose(rows->file);
	memset(rows, 0, sizeof(*rows));
}

/* Makes room for another row: in more memory, up to the limit, then by emptying it to the file. */
static void
grow_or_spill(SortedRows *rows)
{
	if (rows->size < MEMORY_ROWS)
		grow(rows);
	else
		spill(rows);
}

/* Makes room for more rows in memory. */
static void
grow(SortedRows *rows)
{
	if (rows->memory == NULL)
	{
		rows->size = FIRST_ROWS;
		rows->memory = MemoryContextAlloc(TopMemoryContext, rows->size * sizeof(LogRow));
	}
	else
	{
		rows->size *= 2;
		rows->memory = repalloc(rows->memory, rows->size * sizeof(LogRow));
	}
}

/* Sorts the rows in memory. */
static void
sort_memory(SortedRows *rows)
{
	if (rows->in_memory > 1)
		qsort_arg(rows->memory, rows->in_memory, sizeof(LogRow), compare_rows, rows);
}

/* Orders by window, then by id; for qsort_arg(). */
static int
compare_rows(const void *a, const void *b, void *arg)
{
	const LogRow *left = a;
	const LogRow *right = b;

	if (left->window != right->window)
	{
		const SortedRows *rows = arg;
		int			mask = (1 << LOG_ROW_WINDOW_BITS) - 1;

		return ((left->window - rows->first_window) & mask) - ((right->window - rows->first_window) & mask);
	}
	return left->id < right->id ? -1 : left->id > right->id;
}

/* Appends the rows in memory to the file, as a piece. All pieces but the last are full. */
static void
spill(SortedRows *rows)
{
	if (rows->file == NULL)
		rows->file = create_file();
	sort_memory(rows);
	write_rows(rows->file, rows->memory, rows->in_memory);
	rows->in_memory = 0;
}

/* Creates a temporary file that outlives the transaction. */
static BufFile *
create_file(void)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	BufFile    *file = BufFileCreateTemp(true);

	MemoryContextSwitchTo(caller);
	return file;
}

/* Writes rows behind the last ones. */
static void
write_rows(BufFile *file, LogRow *rows, int64 n)
{
	BufFileWrite(file, rows, n * sizeof(LogRow));
}

/* Reads n rows, from row `from` of the file on. */
static void
read_rows(BufFile *file, int64 from, LogRow *rows, int64 n)
{
	if (BufFileSeek(file, 0, from * sizeof(LogRow), SEEK_SET) != 0 ||
		BufFileRead(file, rows, n * sizeof(LogRow)) != n * sizeof(LogRow))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read temporary file of a window: %m")));
}

/*
 * Merges all pieces into a new file. The pieces and the output share the memory
 * in which the rows were sorted.
 */
static BufFile *
merge(SortedRows *rows)
{
	int			npieces = (rows->n + MEMORY_ROWS - 1) / MEMORY_ROWS;
	int64		part = rows->size / (npieces + 1);
	Piece	   *pieces = palloc0(npieces * sizeof(Piece));
	BufFile    *merged = create_file();

	for (int i = 0; i < npieces; i++)
		pieces[i] = (Piece) {
			.file = rows->file,
			.rows = rows->memory + i * part,
			.size = part,
			.at = i * (int64) MEMORY_ROWS,
			.end = Min((i + 1) * (int64) MEMORY_ROWS, rows->n)
		};
	merge_pieces(&(Merge) {.rows = rows, .pieces = pieces}, npieces, rows->memory + npieces * part, part, merged);
	pfree(pieces);
	return merged;
}

/* Writes the rows of all pieces in their order. The heap has the piece with the least one on top. */
static void
merge_pieces(Merge *merge, int npieces, LogRow *out, int64 out_size, BufFile *merged)
{
	binaryheap *heap = binaryheap_allocate(npieces, compare_pieces, merge);
	int64		n = 0;

	for (int i = 0; i < npieces; i++)
	{
		if (refill(&merge->pieces[i]))
			binaryheap_add_unordered(heap, Int32GetDatum(i));
	}
	binaryheap_build(heap);
	while (!binaryheap_empty(heap))
	{
		Datum		first = binaryheap_first(heap);
		Piece	   *piece = &merge->pieces[DatumGetInt32(first)];

		CHECK_FOR_INTERRUPTS();
		out[n++] = piece->rows[piece->next++];
		if (piece->next < piece->n || refill(piece))
			binaryheap_replace_first(heap, first);
		else
			(void) binaryheap_remove_first(heap);
		if (n == out_size || binaryheap_empty(heap))
		{
			write_rows(merged, out, n);
			n = 0;
		}
	}
	binaryheap_free(heap);
}

/* Reads the next rows of a piece. Returns false if it has ended. */
static bool
refill(Piece *piece)
{
	piece->n = Min(piece->size, piece->end - piece->at);
	piece->next = 0;
	if (piece->n <= 0)
		return false;
	read_rows(piece->file, piece->at, piece->rows, piece->n);
	piece->at += piece->n;
	return true;
}

/*
 * Compares pieces for the heap. It has the greatest element on top, which must be
 * the piece with the least row.
 */
static int
compare_pieces(Datum a, Datum b, void *arg)
{
	const Merge *merge = arg;
	const Piece *left = &merge->pieces[DatumGetInt32(a)];
	const Piece *right = &merge->pieces[DatumGetInt32(b)];

	return compare_rows(&right->rows[right->next], &left->rows[left->next], merge->rows);
}
