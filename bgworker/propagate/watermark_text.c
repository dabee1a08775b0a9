/*
 * watermark_text.c
 *		The watermark that stands in a deduplication store: which ids it has.
 *
 * Called by store_propagation.c, which compares what is there with what we wrote last, and so
 * finds out whether the store has lost ids. Nothing here talks to a store.
 *
 *	 <window number> <window uuid> <endpoints>		all ids of these endpoints up to the end of that window
 *	 <window number> <window uuid> <endpoints> +3	... and those of three additions after it
 *
 * Endpoints are a hash of those that had the store. If the store goes back to a watermark of
 * others, it may lack ids of before it that came with an endpoint.
 */
#include "postgres.h"

#include "bgworker/propagate/watermark_text.h"
#include "src/log/window_row.h"
#include "src/unique_id.h"

static void write_watermark(int64 number, const pg_uuid_t *uuid, uint64 endpoints, char *watermark);
static void continue_watermark(const char *before, char *watermark);
static int64 window_of(const char *watermark, uint64 endpoints);

/*
 * Writes the watermarks that follow others: that of the last window of `reader`, of which all ids
 * of these endpoints were added, or those before with a number if it is NULL.
 */
void
watermark_text_write_next(const StoreWatermarks *before, int nparts, const ReceiptReader *reader, uint64 endpoints,
						  StoreWatermarks *next)
{
	memset(next, 0, sizeof(*next));
	for (int part = 0; part < nparts; part++)
	{
		if (reader)
			write_watermark(reader->last, &reader->uuid, endpoints, next->part[part]);
		else
			continue_watermark(before->part[part], next->part[part]);
	}
}

/* Returns the window up to which all parts of a store have the ids of these endpoints. Needs an open transaction. */
int64
watermark_text_oldest(const StoreReport *report, uint64 endpoints)
{
	int64		oldest = PG_INT64_MAX;

	for (int part = 0; part < report->nparts; part++)
		oldest = Min(oldest, window_of(report->watermarks.part[part], endpoints));
	return oldest;
}

/* Writes the watermark of a store that has all ids of these endpoints up to the end of a window. */
static void
write_watermark(int64 number, const pg_uuid_t *uuid, uint64 endpoints, char *watermark)
{
	char		text[UNIQUE_ID_BYTES];

	unique_id_write(uuid, text);
	snprintf(watermark, STORE_WATERMARK_BYTES, "%lld %s %016llx", (long long) number, text, (unsigned long long) endpoints);
}

/* Writes the watermark that follows another one when ids of later windows were added, but not all: it has a number. */
static void
continue_watermark(const char *before, char *watermark)
{
	const char *plus = strrchr(before, '+');
	int			length = plus ? plus - before : strlen(before);

	snprintf(watermark, STORE_WATERMARK_BYTES, "%.*s%s+%d", length, before, plus ? "" : " ", plus ? atoi(plus + 1) + 1 : 1);
}

/*
 * Returns the window up to which a part of a store has all ids of these endpoints: the one that its
 * watermark names or, if that is not kept or is of other endpoints, the oldest one that is.
 */
static int64
window_of(const char *watermark, uint64 endpoints)
{
	int64		oldest = window_row_oldest_number();
	long long	number;
	Window		window;
	char		expected[STORE_WATERMARK_BYTES];

	if (sscanf(watermark, "%lld ", &number) != 1 || number <= oldest || !window_row_fetch(number, &window))
		return oldest;
	write_watermark(window.number, &window.uuid, endpoints, expected);
	return strncmp(watermark, expected, strlen(expected)) == 0 ? number : oldest;
}
