/*
 * era.c
 *		Eras: by them a fence that names a window we never opened is understood.
 *
 * Called by redis_session.c, fence_claims.c, lane.c and resume.c. An era is a stretch of
 * publishing: it ends when another server takes over, or when the database turns out
 * to have gone back in time. Its name is part of each fence that is set in it, and of each
 * that is claimed in it: so who finds a claim knows of an era of which nothing has arrived.
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
 * Who writes what when: claiming a fence leaves the era of what it says, and replaces that
 * of the claim before. So the notes are made when the fences were read, before they are
 * claimed, and the claims name the era that begins there. If an era begins later, because
 * the position shows that the database has gone back, or a lane that is used for the first
 * time does, the fences are claimed once more before anything is sent in it.
 *
 *	 died before the commit		nothing was claimed; the next connect notes the same
 *	 after it					the new era goes on, or another one begins after the same
 *								window; none of its messages was sent
 *	 a standby lacks the note	it lacks all windows that were opened since, too. If it
 *								takes over, it meets our claims: what we have sent may
 *								still be under way, even if it is the first batch of
 *								the era
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
#include "src/table/own_table.h"
#include "src/table/relations.h"
#include "src/unique_id.h"

static char current[ERA_BYTES]; /* empty = none has begun */
static bool is_unused;			/* this process began it, and has not used a
								 * connection since */
static List *met;				/* names of eras that fences were found to be
								 * of */

static void load(void);
static void meet(const char *era);
static void begin(int64 after);
static bool read_end(const char *era, int64 *went_on_after);
static void note_end(const char *era, int64 after);

/* Reads which era is the current one. */
static void
load(void)
{
	current[0] = '\0';
	own_table_require(relations_enter()->era, OWN_ERA);
	SPI_connect();
	(void) transaction_query("SELECT id FROM outbox.era WHERE went_on_after IS NULL LIMIT 1", 0, NULL, NULL, NULL);
	own_rows_require(ROWS_ERA);
	if (SPI_processed == 1)
		strlcpy(current, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), sizeof(current));
	SPI_finish();
}

/* Returns the name of the current era; it is empty as long as none has begun. */
const char *
era_name(void)
{
	return current;
}

/*
 * Remembers the era of a fence that was found, and that in which it was claimed, until
 * they are known or noted to have ended.
 */
void
era_meet(const char *fence_text)
{
	Fence		fence;
	char		claim[ERA_BYTES];

	fence_read_claim(fence_text, claim);
	if (claim[0] != '\0')
		meet(claim);
	if (fence_parse(fence_text, &fence))
		meet(fence.era);
}

/* Remembers one of them, unless it is the current one. */
static void
meet(const char *era)
{
	MemoryContext caller;

	if (strcmp(era, current) == 0)
		return;
	for (int i = 0; i < list_length(met); i++)
	{
		if (strcmp(list_nth(met, i), era) == 0)
			return;
	}
	caller = MemoryContextSwitchTo(TopMemoryContext);
	met = lappend(met, pstrdup(era));
	MemoryContextSwitchTo(caller);
}

/* Check whether era_knows_all_met() is to be asked. */
bool
era_has_met(void)
{
	return met != NIL;
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
 * Begins an era after that window if another server published before us, as far as the
 * database or a fence tells, or if none has begun yet. One that this process has begun and
 * has not used is as good, unless a fence tells of others: so where connecting fails
 * again and again, not each attempt leaves one. Must be called when fences were read and
 * before they are claimed. Needs an open transaction.
 */
void
era_begin_if_due(bool another_published, int64 after)
{
	load();
	if (!era_knows_all_met() || current[0] == '\0' || (another_published && !is_unused))
		begin(after);
}

/* Check whether the current era was begun since this process used a connection. */
bool
era_is_unused(void)
{
	return is_unused;
}

/* Notes that a connection is used from now on. */
void
era_use(void)
{
	is_unused = false;
}

/* Begins an era after that window. Ours, and those that were met, have ended. */
static void
begin(int64 after)
{
	(void) transaction_execute("UPDATE outbox.era SET went_on_after = $1 WHERE went_on_after IS NULL",
							   1, (Oid[]) {INT8OID}, (Datum[]) {Int64GetDatum(after)}, NULL);
	for (int i = 0; i < list_length(met); i++)
		note_end(list_nth(met, i), after);
	list_free_deep(met);
	met = NIL;
	unique_id_name(current);
	is_unused = true;
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
	begin(now);
	return now;
}

/* Reads after which window sending went on when an era ended. Returns false if it has not, as far as we know. */
static bool
read_end(const char *era, int64 *went_on_after)
{
	bool		found;
	bool		isnull;

	own_table_require(relations_enter()->era, OWN_ERA);
	SPI_connect();
	found = transaction_query("SELECT went_on_after FROM outbox.era WHERE id = $1 AND went_on_after IS NOT NULL LIMIT 1",
							  1, (Oid[]) {TEXTOID}, (Datum[]) {CStringGetTextDatum(era)}, NULL) == 1;
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
