/*
 * marking.c
 *		Marks the records in custom record tables as dispatched.
 *
 * Called by bookkeeper.c. Each table has a position of its own in the windows
 * that are published, so one that cannot be used does not delay others. Records
 * that are locked are remembered and tried again; meanwhile the position that
 * is reported for the table does not advance, so the log keeps the receipts,
 * but later records are marked.
 *
 * A record is marked when all its messages are in Redis, as outbox_wait() says.
 * If one of its messages was deferred, its receipt is skipped here, and another
 * one is appended when that message is returned (log_append_receipt_of()). So
 * it delays neither the log nor other records, however long it waits.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/propagate/mark_statement.h"
#include "bgworker/propagate/marking.h"
#include "bgworker/propagate/marking_progress.h"
#include "bgworker/propagate/receipts.h"
#include "bgworker/propagate/table_pace.h"
#include "bgworker/propagate/table_quarantine.h"
#include "bgworker/propagate/table_statement.h"
#include "src/clock.h"
#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/log/deferred.h"
#include "src/problem.h"
#include "src/record/endpoint.h"
#include "src/record/record_name.h"

#define MAX_WINDOWS		64		/* whose receipts are collected at once */
#define MAX_MESSAGES	1000	/* marked at once */
#define MAX_LOCKED		10000	/* with this many locked, no more are read */

#define FIRST_RETRY_MS	100
#define LAST_RETRY_MS	5000

static int64 listed;			/* to_mark when they were listed last */
static int64 repeated_upto;		/* newest window that may have been worked on
								 * before */
static int64 reported;			/* last result of marking_least() */
static SnapshotValue *published;	/* sees everything that is published */

static bool list_tables(int64 start_at, int64 to_mark);
static void expect_repetition(void);
static void skip_to(int64 number);
static bool go_on_with(MarkedTable *table, int64 to_mark);
static bool rests(const MarkedTable *table);
static void try_locked_again(MarkedTable *table);
static bool mark_page(MarkedTable *table, int64 to_mark);
static bool take_id(const Receipt *receipt, void *arg);
static bool is_of(const Receipt *receipt, const MarkedTable *table);
static Marking mark_ids(MarkedTable *table, char **msgids, int n, bool is_repeated);
static void note_result(MarkedTable *table, Marking marking);
static void note_all_is_well(MarkedTable *table);
static void wait_longer(MarkedTable *table);
static void set_problem(MarkedTable *table, const char *problem);
static void report_table_problem(void);

/* Prepares for use; called once, when the bookkeeper starts. */
void
marking_init(void)
{
	marking_begin_again(InvalidOid);
	problem_clear(PROBLEM_MARKING); /* noted by a predecessor */
}

/* Forgets how far marking has got in a table, or in all (InvalidOid): what is marked next is said to marking_run(). */
void
marking_begin_again(Oid table)
{
	marking_progress_forget(table);
	marking_list_again();
}

/* Has the tables listed again: the dispatcher knows of others, and nothing counts as marked by what was listed. */
void
marking_list_again(void)
{
	listed = reported = -1;
}

/*
 * Marks some of the records of windows up to `to_mark`; those up to `marked`
 * are done, or have no receipts. Returns whether there is more to do at once.
 */
bool
marking_run(int64 marked, int64 to_mark)
{
	bool		more = false;

	if (to_mark > listed && !list_tables(marked, to_mark))
		return false;
	if (marked > reported)
		skip_to(marked);
	for (MarkedTable *table = marking_progress_first(); table; table = table->next)
		more |= go_on_with(table, to_mark);
	report_table_problem();
	return more;
}

/* Returns the newest window up to which all records are marked. */
int64
marking_least(void)
{
	int64		least = listed;

	for (MarkedTable *table = marking_progress_first(); table; table = table->next)
		least = Min(least, table->marked);
	return reported = Max(reported, least);
}

/* Returns how long until something is tried again. */
long
marking_ms_until_due(void)
{
	TimestampTz now = clock_now();
	long		ms = PG_INT32_MAX;

	for (MarkedTable *table = marking_progress_first(); table; table = table->next)
	{
		if (table->failed || table->locked.n > 0)
			ms = Min(ms, TimestampDifferenceMilliseconds(now, Max(table->next_try, table->rests_until)));
		else if (rests(table))
			ms = Min(ms, TimestampDifferenceMilliseconds(now, table->rests_until));
	}
	return ms;
}

/*
 * Finds out which tables there are, including all for which windows up to
 * `to_mark` have receipts. A new one begins after what is done.
 */
static bool
list_tables(int64 start_at, int64 to_mark)
{
	if (!transaction_begin("reading endpoints"))
		return false;
	if (marking_progress_list(start_at))
		expect_repetition();
	transaction_commit();
	if (listed < 0)
		marking_progress_put_last(table_quarantine_ended_at());
	listed = to_mark;
	return true;
}

/*
 * Notes that receipts up to now may have been used before: by another process,
 * or by this one when the endpoint had the table earlier.
 */
static void
expect_repetition(void)
{
	Window		newest;

	if (!window_row_newest(&newest))
		elog(ERROR, "no window is left");
	repeated_upto = newest.number;
}

/*
 * Skips windows that, as the dispatcher says, have no receipts that we have not
 * used.
 */
static void
skip_to(int64 number)
{
	for (MarkedTable *table = marking_progress_first(); table; table = table->next)
	{
		table->marked = Max(table->marked, number);
		if (table->read_upto < number)
			receipts_forget(&table->reader);
		table->read_upto = Max(table->read_upto, number);
	}
}

/*
 * Does one step for a table. Returns whether it has another one to do at once.
 */
static bool
go_on_with(MarkedTable *table, int64 to_mark)
{
	bool		more = false;
	bool		is_due = clock_now() >= table->next_try;

	if ((table->failed && !is_due) || rests(table))
		return false;
	table->failed = false;
	if (table->locked.n > 0 && is_due)
		try_locked_again(table);
	if (!table->failed && !rests(table) && table->read_upto < to_mark && table->locked.n < MAX_LOCKED)
		more |= mark_page(table, to_mark);
	if (table->locked.n == 0)
		table->marked = table->read_upto;
	return more;
}

/* Check whether the table rests now, so that others get their turn. */
static bool
rests(const MarkedTable *table)
{
	return clock_now() < table->rests_until;
}

/*
 * Tries records again that were locked, in pieces. Those that still are stay in
 * the list; a piece that had no turn, because the table rests, is the first next
 * time.
 */
static void
try_locked_again(MarkedTable *table)
{
	int			left = 0;
	int			tried = 0;

	for (int first = 0; first < table->locked.n; first += MAX_MESSAGES)
	{
		int			n = Min(MAX_MESSAGES, table->locked.n - first);
		bool		has_turn = !table->failed && !rests(table);
		Marking		marking = has_turn ? mark_ids(table, table->locked.items + first, n, true) : MARKING_FAILED;

		for (int i = 0; marking != MARKING_DONE && i < n; i++)
			table->locked.items[left++] = table->locked.items[first + i];
		if (has_turn)
			tried = left;
	}
	table->locked.n = left;
	id_list_rotate(&table->locked, tried);
	if (left > 0)
	{
		wait_longer(table);
		return;
	}
	id_list_empty(&table->locked);
	note_all_is_well(table);
}

/* Marks the next page of receipts. */
static bool
mark_page(MarkedTable *table, int64 to_mark)
{
	int64		at = table->reader.next;
	int64		before = table->read_upto;
	ReceiptResult result;
	Marking		marking = MARKING_DONE;

	id_list_empty(&table->page);
	table->is_unnamed = false;
	published = NULL;
	result = receipts_read(&table->reader, table->read_upto, Min(to_mark, table->read_upto + MAX_WINDOWS), take_id, table);
	if (result == RECEIPTS_REFUSED)
		return false;
	if (!table->reader.collected)
		repeated_upto = Max(repeated_upto, to_mark);	/* receipts have moved */
	if (table->page.n > 0)
		marking = mark_ids(table, table->page.items, table->page.n, table->is_unnamed || table->read_upto < repeated_upto);
	if (table->failed)
	{
		/* Read the same page once more. */
		table->reader.next = table->reader.collected ? at : 0;
		wait_longer(table);
		return false;
	}
	/* Which of them are locked is not known, so all are tried again. */
	for (int i = 0; marking == MARKING_INCOMPLETE && i < table->page.n; i++)
	{
		if (table->locked.n == 0)
			wait_longer(table);
		id_list_add(&table->locked, table->page.items[i]);
	}
	if (result == RECEIPTS_MORE)
		return true;
	table->read_upto = table->reader.upto;
	receipts_forget(&table->reader);
	return table->read_upto > before && table->read_upto < to_mark;
}

/* A ReceiptVisit: collects the id of a receipt. */
static bool
take_id(const Receipt *receipt, void *arg)
{
	MarkedTable *table = arg;
	Window		window;
	bool		is_dead;

	if (!is_of(receipt, table))
		return true;
	if (published == NULL)
	{
		if (!window_row_published(&window))
			elog(ERROR, "no window is left");
		published = window.snapshot;
	}
	if (!deferred_record_waits(&receipt->key, published, NULL, &is_dead))
	{
		char	   *msgid = text_to_cstring(receipt->msgid);

		id_list_add(&table->page, msgid);
		pfree(msgid);
		table->is_unnamed |= receipt->endpoint == NULL;
	}
	return table->page.n < MAX_MESSAGES;
}

/*
 * Check whether a receipt is of the table's endpoint. That of a message that
 * had been deferred names no endpoint, so its key is compared.
 */
static bool
is_of(const Receipt *receipt, const MarkedTable *table)
{
	char	   *msgid;
	pg_uuid_t	key;

	if (receipt->endpoint)
		return VARSIZE_ANY_EXHDR(receipt->endpoint) == strlen(table->endpoint) &&
			memcmp(VARDATA_ANY(receipt->endpoint), table->endpoint, strlen(table->endpoint)) == 0;
	msgid = text_to_cstring(receipt->msgid);
	record_name_make_key(table->endpoint, msgid, &key);
	pfree(msgid);
	return memcmp(&key, &receipt->key, sizeof(key)) == 0;
}

/* Marks the records of these ids. */
static Marking
mark_ids(MarkedTable *table, char **msgids, int n, bool is_repeated)
{
	TimestampTz begun = clock_now();
	Marking		marking = mark_statement_execute(table->endpoint, table->table, msgids, n, is_repeated);

	table->rests_until = table_pace_rest_after(begun);
	table->failed = marking == MARKING_FAILED || marking == MARKING_GONE;
	note_result(table, marking);
	return marking;
}

/*
 * Notes what a statement tells of a table. If records stay locked for long, that is
 * reported as well, because the log grows; and it stays so while others are marked.
 */
static void
note_result(MarkedTable *table, Marking marking)
{
	char	   *problem;

	if (marking == MARKING_GONE)
	{
		marking_list_again();
		return;
	}
	if (marking == MARKING_FAILED)
	{
		table->has_error = true;
		set_problem(table, table_statement_error());
		return;
	}
	if (table->has_error || (marking == MARKING_DONE && table->locked.n == 0))
		note_all_is_well(table);
	if (marking == MARKING_INCOMPLETE && table->retry_ms == LAST_RETRY_MS)
	{
		problem = psprintf("records of endpoint \"%s\" stay locked, or a trigger keeps them from being changed",
						   table->endpoint);
		set_problem(table, problem);
		pfree(problem);
	}
}

/* Notes that the table can be used, and that no record is known to stay locked. */
static void
note_all_is_well(MarkedTable *table)
{
	table->has_error = false;
	table->retry_ms = 0;
	set_problem(table, "");
}

/* Doubles the time until records that stay locked, or a table that fails, are tried again. */
static void
wait_longer(MarkedTable *table)
{
	table->retry_ms = Min(Max(table->retry_ms * 2, FIRST_RETRY_MS), LAST_RETRY_MS);
	table->next_try = TimestampTzPlusMilliseconds(clock_now(), table->retry_ms);
}

/* Notes what is wrong with a table; "" = nothing. */
static void
set_problem(MarkedTable *table, const char *problem)
{
	strlcpy(table->problem, problem, sizeof(table->problem));
}

/*
 * Reports one of the tables that have a problem in the views, and in the server
 * log if it is news.
 */
static void
report_table_problem(void)
{
	static char reported_problem[FOREIGN_TEXT_BYTES];
	const char *problem = "";

	for (MarkedTable *table = marking_progress_first(); table; table = table->next)
	{
		if (table->problem[0] != '\0')
			problem = table->problem;
	}
	if (strcmp(reported_problem, problem) == 0)
		return;
	strlcpy(reported_problem, problem, sizeof(reported_problem));
	if (problem[0] == '\0')
	{
		ereport(LOG, (errmsg("outbox: processed messages can be marked again")));
		problem_clear(PROBLEM_MARKING);
		return;
	}
	ereport(LOG, (errmsg("outbox: processed messages cannot be marked: %s", problem)));
	problem_set(PROBLEM_MARKING, "Processed messages cannot be marked, so the log keeps their receipts. Correct the table, its triggers, or what keeps its records locked. The error is: %s", problem);
}
