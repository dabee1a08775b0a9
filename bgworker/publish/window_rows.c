/*
 * window_rows.c
 *		Keeps the places of the messages of a window, in the order of their ids.
 *
 * Called by position.c, which adds rows, and by publisher.c and batch.c. Most
 * windows are small. But a transaction may enqueue any number of messages, and
 * everything that was enqueued while dispatch was off is in one window. Memory
 * must stay bounded, so more than MEMORY_ROWS rows are sorted on disk:
 *
 *	 memory full --> sorted, appended to a temporary file as a run
 *	 no more rows --> all runs are merged into another file, which is read in
 *					  pages from then on, in any order
 *
 * Rows and file outlive the transaction in which they were collected. The file
 * is removed when the process ends.
 */
#include "postgres.h"

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "bgworker/publish/window_rows.h"

#define FIRST_ROWS		1024
#define MEMORY_ROWS		(256 * 1024)	/* 4 MB */
#define PAGE_ROWS		4096	/* 64 kB */

/* A sorted piece of the first file. */
typedef struct Run
{
	BufFile    *file;
	LogRow	   *rows;			/* rows that were read and not merged yet */
	int64		n;
	int64		next;			/* of these, the next to merge */
	int64		size;			/* how many may be read at once */
	int64		at;				/* row of the file to be read next */
	int64		end;
} Run;

static void grow_or_spill(WindowRows *rows);
static void sort_memory(WindowRows *rows);
static int	compare_rows(const void *a, const void *b);
static void spill(WindowRows *rows);
static BufFile *create_file(void);
static void write_rows(BufFile *file, LogRow *rows, int64 n);
static void read_rows(BufFile *file, int64 from, LogRow *rows, int64 n);
static BufFile *merge(WindowRows *rows);
static void merge_runs(Run *runs, int nruns, LogRow *out, int64 out_size, BufFile *merged);
static bool run_refill(Run *run);
static int	compare_runs(Datum a, Datum b, void *arg);

/* Adds a row, in any order. Needs an open transaction. */
void
window_rows_add(WindowRows *rows, const LogRow *row)
{
	if (rows->in_memory == rows->size)
		grow_or_spill(rows);
	rows->memory[rows->in_memory++] = *row;
	rows->n++;
}

/* Sorts the rows; none may be added after that. Needs an open transaction. */
void
window_rows_sort(WindowRows *rows)
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

/* Returns row n of the window, from 0 on; it is valid until the next call. */
const LogRow *
window_rows_get(WindowRows *rows, int64 n)
{
	if (n < rows->page || n >= rows->page + rows->in_memory)
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
	return &rows->memory[n - rows->page];
}

/* Returns the number of the first row whose id is greater than that; the number of rows if none is. */
int64
window_rows_first_after(WindowRows *window, int64 id)
{
	int64		low = 0;
	int64		high = window->n;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		if (window_rows_get(window, middle)->id <= id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Frees all memory and the file. No rows are collected after that. */
void
window_rows_free(WindowRows *rows)
{
	if (rows->memory)
		pfree(rows->memory);
	if (rows->file)
		BufFileClose(rows->file);
	memset(rows, 0, sizeof(*rows));
	rows->number = -1;
}

/* Makes room for another row: in more memory, up to the limit, then by emptying it to the file. */
static void
grow_or_spill(WindowRows *rows)
{
	if (rows->memory == NULL)
	{
		rows->size = FIRST_ROWS;
		rows->memory = MemoryContextAlloc(TopMemoryContext, rows->size * sizeof(LogRow));
	}
	else if (rows->size < MEMORY_ROWS)
	{
		rows->size *= 2;
		rows->memory = repalloc(rows->memory, rows->size * sizeof(LogRow));
	}
	else
		spill(rows);
}

/* Sorts the rows in memory by their ids. */
static void
sort_memory(WindowRows *rows)
{
	if (rows->in_memory > 1)
		qsort(rows->memory, rows->in_memory, sizeof(LogRow), compare_rows);
}

/* Orders by id; for qsort(). */
static int
compare_rows(const void *a, const void *b)
{
	int64		left = ((const LogRow *) a)->id;
	int64		right = ((const LogRow *) b)->id;

	return left < right ? -1 : left > right;
}

/* Appends the rows in memory to the file, as a run. All runs but the last are full. */
static void
spill(WindowRows *rows)
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
 * Merges all runs into a new file. The runs and the output share the memory in
 * which the rows were sorted.
 */
static BufFile *
merge(WindowRows *rows)
{
	int			nruns = (rows->n + MEMORY_ROWS - 1) / MEMORY_ROWS;
	int64		part = rows->size / (nruns + 1);
	Run		   *runs = palloc0(nruns * sizeof(Run));
	BufFile    *merged = create_file();

	for (int i = 0; i < nruns; i++)
		runs[i] = (Run) {
			.file = rows->file,
			.rows = rows->memory + i * part,
			.size = part,
			.at = i * (int64) MEMORY_ROWS,
			.end = Min((i + 1) * (int64) MEMORY_ROWS, rows->n)
		};
	merge_runs(runs, nruns, rows->memory + nruns * part, part, merged);
	pfree(runs);
	return merged;
}

/* Writes the rows of all runs in the order of their ids. The heap has the run with the least one on top. */
static void
merge_runs(Run *runs, int nruns, LogRow *out, int64 out_size, BufFile *merged)
{
	binaryheap *heap = binaryheap_allocate(nruns, compare_runs, runs);
	int64		n = 0;

	for (int i = 0; i < nruns; i++)
	{
		if (run_refill(&runs[i]))
			binaryheap_add_unordered(heap, Int32GetDatum(i));
	}
	binaryheap_build(heap);
	while (!binaryheap_empty(heap))
	{
		Datum		first = binaryheap_first(heap);
		Run		   *run = &runs[DatumGetInt32(first)];

		CHECK_FOR_INTERRUPTS();
		out[n++] = run->rows[run->next++];
		if (run->next < run->n || run_refill(run))
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

/* Reads the next rows of a run. Returns false if it has ended. */
static bool
run_refill(Run *run)
{
	run->n = Min(run->size, run->end - run->at);
	run->next = 0;
	if (run->n <= 0)
		return false;
	read_rows(run->file, run->at, run->rows, run->n);
	run->at += run->n;
	return true;
}

/*
 * Compares runs for the heap. It has the greatest element on top, which must be
 * the run with the least id.
 */
static int
compare_runs(Datum a, Datum b, void *arg)
{
	Run		   *runs = arg;
	const Run  *left = &runs[DatumGetInt32(a)];
	const Run  *right = &runs[DatumGetInt32(b)];

	return compare_rows(&right->rows[right->next], &left->rows[left->next]);
}
