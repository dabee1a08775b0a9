/*
 * marking.c
 *		Has the records in tables of users' own marked as dispatched.
 *
 * Called by handover.c with the messages of windows that are published. It goes
 * endpoint by endpoint. What somebody has locked, or whose table cannot be used,
 * is put aside and tried again: so it holds up nothing but the durable note of
 * how far we are (position.handed_over), and with it the emptying of the log.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/bookkeeping.h"
#include "bgworker/marking.h"
#include "src/clock.h"
#include "src/foreign_text.h"
#include "src/problem.h"

#define MAX_MESSAGES	10000	/* marked at once */
#define MAX_ASIDE		10000	/* with as many put aside, no more are read */

#define FIRST_RETRY_MS	100
#define LAST_RETRY_MS	5000

/* A processed message. */
typedef struct Processed
{
	char	   *endpoint;
	char	   *msgid;
	bool		failed;			/* put aside because the table cannot be used */
} Processed;

typedef struct ProcessedList
{
	MemoryContext context;
	Processed  *items;
	int64		n;
	int64		size;
} ProcessedList;

static ProcessedList batch;
static ProcessedList aside;
static TimestampTz next_try;	/* of what was put aside */
static int	retry_ms;

static void empty(ProcessedList *list);
static void add(ProcessedList *list, const char *endpoint, const char *msgid, bool failed);
static void mark_all(const ProcessedList *list);
static void mark(const Processed *items, int n);
static bool is_failing(const char *endpoint);
static Marking mark_in_table(const Processed *items, int n);
static void report_error(const char *error);
static int	compare_endpoints(const void *a, const void *b);

/* Prepares for use; once, when the dispatcher starts. */
void
marking_init(void)
{
	batch.context = AllocSetContextCreate(TopMemoryContext, "outbox marking", ALLOCSET_DEFAULT_SIZES);
	aside.context = AllocSetContextCreate(TopMemoryContext, "outbox marking later", ALLOCSET_DEFAULT_SIZES);
}

/* Forgets the messages that were added last. */
void
marking_begin(void)
{
	empty(&batch);
}

/* Adds a message to those that marking_run() will mark. */
void
marking_add(const char *endpoint, const char *msgid)
{
	add(&batch, endpoint, msgid, false);
}

/* Marks what was added; what cannot be marked is put aside. */
void
marking_run(void)
{
	if (batch.n > 1)
		qsort(batch.items, batch.n, sizeof(Processed), compare_endpoints);
	mark_all(&batch);
	if (marking_is_complete())
		report_error("");
}

/* Tries what was put aside again, if it is time; what fails is put aside anew. */
void
marking_try_again(void)
{
	ProcessedList again = aside;

	if (aside.n == 0 || clock_now() < next_try)
		return;
	aside = (ProcessedList) {
		.context = AllocSetContextCreate(TopMemoryContext, "outbox marking later", ALLOCSET_DEFAULT_SIZES)
	};
	mark_all(&again);
	MemoryContextDelete(again.context);

	if (marking_is_complete())
		report_error("");
	retry_ms = marking_is_complete() ? 0 : Min(Max(retry_ms * 2, FIRST_RETRY_MS), LAST_RETRY_MS);
	next_try = TimestampTzPlusMilliseconds(clock_now(), retry_ms);
}

/* Whether as much is put aside as may be. */
bool
marking_has_room(void)
{
	return aside.n < MAX_ASIDE;
}

/* Whether nothing is put aside. */
bool
marking_is_complete(void)
{
	return aside.n == 0;
}

/* How long until what is put aside is tried again. */
long
marking_ms_until_due(void)
{
	return aside.n == 0 ? PG_INT32_MAX : TimestampDifferenceMilliseconds(clock_now(), next_try);
}

static void
empty(ProcessedList *list)
{
	MemoryContextReset(list->context);
	list->items = NULL;
	list->n = list->size = 0;
}

static void
add(ProcessedList *list, const char *endpoint, const char *msgid, bool failed)
{
	MemoryContext caller = MemoryContextSwitchTo(list->context);

	if (list->n == list->size)
	{
		list->size = list->size ? list->size * 2 : 64;
		list->items = list->items ?
			repalloc_huge(list->items, list->size * sizeof(Processed)) :
			palloc(list->size * sizeof(Processed));
	}
	list->items[list->n].endpoint = pstrdup(endpoint);
	list->items[list->n].msgid = pstrdup(msgid);
	list->items[list->n].failed = failed;
	list->n++;
	MemoryContextSwitchTo(caller);
}

/* Goes through a list, one endpoint after the other. */
static void
mark_all(const ProcessedList *list)
{
	int64		first = 0;

	for (int64 i = 1; i <= list->n; i++)
	{
		if (i < list->n && i - first < MAX_MESSAGES &&
			strcmp(list->items[i].endpoint, list->items[first].endpoint) == 0)
			continue;
		mark(&list->items[first], (int) (i - first));
		first = i;
	}
}

/*
 * Marks some messages of one endpoint. A table that fails may take its time
 * for that, so it gets none until the rest is tried again.
 */
static void
mark(const Processed *items, int n)
{
	Marking		marking = is_failing(items[0].endpoint) ? MARKING_FAILED : mark_in_table(items, n);

	for (int i = 0; marking != MARKING_DONE && i < n; i++)
		add(&aside, items[i].endpoint, items[i].msgid, marking == MARKING_FAILED);
}

/* Whether something of an endpoint is aside because its table cannot be used. */
static bool
is_failing(const char *endpoint)
{
	for (int64 i = 0; i < aside.n; i++)
	{
		if (aside.items[i].failed && strcmp(aside.items[i].endpoint, endpoint) == 0)
			return true;
	}
	return false;
}

/* What is locked for long is told as well: the log grows. */
static Marking
mark_in_table(const Processed *items, int n)
{
	char	  **msgids = palloc(n * sizeof(char *));
	Marking		marking;

	for (int i = 0; i < n; i++)
		msgids[i] = items[i].msgid;
	marking = bookkeeping_mark(items[0].endpoint, msgids, n);
	pfree(msgids);

	if (marking == MARKING_FAILED)
		report_error(bookkeeping_error());
	else if (marking == MARKING_INCOMPLETE && retry_ms == LAST_RETRY_MS &&
			 !problem_is_set(PROBLEM_MARKING))
	{
		char	   *error = psprintf("records of endpoint \"%s\" stay locked, or a trigger keeps them from being changed",
									 items[0].endpoint);

		report_error(error);
		pfree(error);
	}
	return marking;
}

/* Tells the views, and the log if it is news; "" = all is well. */
static void
report_error(const char *error)
{
	static char reported[FOREIGN_TEXT_BYTES];

	if (strcmp(reported, error) == 0)
		return;
	strlcpy(reported, error, sizeof(reported));
	if (error[0] == '\0')
	{
		ereport(LOG, (errmsg("outbox: processed messages can be marked again")));
		problem_clear(PROBLEM_MARKING);
		return;
	}
	ereport(LOG, (errmsg("outbox: processed messages cannot be marked: %s", error)));
	problem_set(PROBLEM_MARKING, "Processed messages cannot be marked, the log keeps them: %s", error);
}

static int
compare_endpoints(const void *a, const void *b)
{
	return strcmp(((const Processed *) a)->endpoint, ((const Processed *) b)->endpoint);
}
