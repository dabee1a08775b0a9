/*
 * era.c
 *		Eras: by them a fence that names a window we never opened is understood.
 *
 * Called by redis_session.c, fence_claims.c, lane.c and resume.c. An era is a stretch of
 * publishing: it ends when another server takes over, or when the database turns out
 * to have gone back in time. Its name is part of each fence that is set in it.
 * outbox.era has a row for each era that we know, and when one has ended also the
 * window after which sending went on. A fence that names a window that this database
 * never opened is
 *
 *	 of an era that has ended	Redis has gone back to it, or a late batch of it has
 *								arrived where Redis had lost our claim: Redis has
 *								nothing of what was sent since the era ended
 *	 of any other era			the database has gone back in time, or another server
 *								has published: our era ends here
 *
 * Each connection notes eras of fences that it finds and does not know: the database of
 * a server that takes over may lack the note of the last one, and while another server
 * had the lease it may have sent nothing but windows that both have.
 *
 * Who writes what when: claiming a fence leaves the era that it names. The notes are
 * made in the transaction that reads the position, or before a lane is used for the
 * first time, so before anything is sent in the new era.
 *
 *	 died before the commit		nothing was sent; the next connect notes the same
 *	 after it					the new era goes on
 *	 a standby lacks the note	it lacks all windows that were opened since, too
 *
 * Rows are not dumped, and a copy of a database, which gets keys of its own in Redis,
 * forgets them. Otherwise they are never removed: however old an era is, Redis may go
 * back to it (a backup of it is restored), and without the row that looks as if the
 * database had gone back, and what was sent since would not be sent again. There are one
 * or two for each takeover.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/lane/era.h"
#include "bgworker/lane/fence.h"
#include "bgworker/process/transaction.h"
#include "src/unique_id.h"

static char current[ERA_BYTES]; /* empty = none has begun */
static List *met;				/* names of eras that fences were found to be
								 * of */

static bool read_end(const char *era, int64 *went_on_after);
static void note_end(const char *era, int64 after);

/* Reads which era is the current one. Needs an open transaction. */
void
era_load(void)
{
	current[0] = '\0';
	SPI_connect();
	if (SPI_execute("SELECT id FROM outbox.era WHERE went_on_after IS NULL", true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.era");
	if (SPI_processed == 1)
		strlcpy(current, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), sizeof(current));
	SPI_finish();
}

/* Check whether an era has begun. */
bool
era_has_begun(void)
{
	return current[0] != '\0';
}

/* Returns the name of the current era. */
const char *
era_name(void)
{
	return current;
}

/* Remembers the era of a fence that was found, until era_begin() notes that it has ended. */
void
era_meet(const char *fence_text)
{
	Fence		fence;
	MemoryContext caller;

	if (!fence_parse(fence_text, &fence))
		return;
	for (int i = 0; i < list_length(met); i++)
	{
		if (strcmp(list_nth(met, i), fence.era) == 0)
			return;
	}
	caller = MemoryContextSwitchTo(TopMemoryContext);
	met = lappend(met, pstrdup(fence.era));
	MemoryContextSwitchTo(caller);
}

/*
 * Check whether there is a row for each era that was met; if so, forgets these. Another
 * server has published if there is none. Needs an open transaction.
 */
bool
era_knows_all_met(void)
{
	for (int i = 0; i < list_length(met); i++)
	{
		if (transaction_execute("SELECT FROM outbox.era WHERE id = $1",
								1, (Oid[]) {TEXTOID}, (Datum[]) {CStringGetTextDatum(list_nth(met, i))}, NULL) == 0)
			return false;
	}
	list_free_deep(met);
	met = NIL;
	return true;
}

/*
 * Begins an era after that window. Ours, and those that were met, have ended. Needs an
 * open transaction.
 */
void
era_begin(int64 after)
{
	(void) transaction_execute("UPDATE outbox.era SET went_on_after = $1 WHERE went_on_after IS NULL",
							   1, (Oid[]) {INT8OID}, (Datum[]) {Int64GetDatum(after)}, NULL);
	for (int i = 0; i < list_length(met); i++)
		note_end(list_nth(met, i), after);
	list_free_deep(met);
	met = NIL;
	unique_id_name(current);
	(void) transaction_execute("INSERT INTO outbox.era (id) VALUES ($1)",
							   1, (Oid[]) {TEXTOID}, (Datum[]) {CStringGetTextDatum(current)}, NULL);
}

/*
 * Returns the window after which sending goes on where a fence of that era names a
 * window that we never opened. If the era had not ended, it ends now, and another one
 * begins after `now`. Needs an open transaction.
 */
int64
era_went_on_after(const char *era, int64 now)
{
	int64		went_on_after;

	if (read_end(era, &went_on_after))
		return went_on_after;
	note_end(era, now);
	era_begin(now);
	return now;
}

/* Reads after which window sending went on when an era ended. Returns false if it has not, as far as we know. */
static bool
read_end(const char *era, int64 *went_on_after)
{
	bool		found;
	bool		isnull;

	SPI_connect();
	if (SPI_execute_with_args("SELECT went_on_after FROM outbox.era WHERE id = $1 AND went_on_after IS NOT NULL",
							  1, (Oid[]) {TEXTOID}, (Datum[]) {CStringGetTextDatum(era)}, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read outbox.era");
	found = SPI_processed == 1;
	if (found)
		*went_on_after = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_finish();
	return found;
}

/* Notes that an era that is not known has ended. */
static void
note_end(const char *era, int64 after)
{
	(void) transaction_execute("INSERT INTO outbox.era VALUES ($1, $2) ON CONFLICT DO NOTHING",
							   2, (Oid[]) {TEXTOID, INT8OID}, (Datum[]) {CStringGetTextDatum(era), Int64GetDatum(after)}, NULL);
}
