/*
 * claimed_again.c
 *		Finds records that have been claimed again since an earlier receipt.
 *
 * Called by mark_statement.c, for receipts that may have been used before. A
 * record that is marked can be forgotten (outbox_forget()) or expire, and its
 * message be processed again. Then the table has another row with that id,
 * which must not be marked before its own messages are in Redis. But the
 * receipt of the first row may be read again:
 *
 *	 a process died after marking		its successor reads on from what is noted
 *	 another record of its page was
 *	 locked								all of the page is tried again
 *	 several messages of it were
 *	 deferred							each left a receipt when it was returned
 *
 * A transaction that claims a record also appends a receipt. So a snapshot that
 * sees the new row sees its receipt, too: if the log has one whose window is not
 * yet published, the older receipt is skipped, and the newer one will mark the
 * row.
 *
 * It must read the log and the table with the same snapshot.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "bgworker/propagate/claimed_again.h"
#include "src/log/log.h"
#include "src/record/record_name.h"

/* The record of each id, in the order of keys. */
typedef struct Candidate
{
	pg_uuid_t	key;
	char	   *msgid;
	bool		is_claimed_again;
} Candidate;

typedef struct Candidates
{
	Candidate  *items;
	int			n;
} Candidates;

static bool find_receipt(TupleTableSlot *row, int segment, void *arg);
static int	compare_keys(const void *a, const void *b);

/*
 * Removes those ids of an endpoint that have a receipt in the log which the
 * active snapshot sees and which is not published; returns how many are left,
 * in any order. Needs an open transaction, whose memory it uses.
 */
int
claimed_again_leave_out(const char *endpoint, char **msgids, int n)
{
	Candidates	candidates = {palloc0(n * sizeof(Candidate)), n};
	Window		published;
	int			left = 0;

	for (int i = 0; i < n; i++)
	{
		candidates.items[i].msgid = msgids[i];
		record_name_make_key(endpoint, msgids[i], &candidates.items[i].key);
	}
	qsort(candidates.items, n, sizeof(Candidate), compare_keys);
	if (!window_row_published(&published))
		elog(ERROR, "no window is left");
	log_scan(InvalidSnapshot, published.snapshot, snapshot_value_now(), find_receipt, &candidates);
	for (int i = 0; i < n; i++)
	{
		if (!candidates.items[i].is_claimed_again)
			msgids[left++] = candidates.items[i].msgid;
	}
	return left;
}

/* A LogReader: notes the candidates that have a receipt. An id may be among them twice. */
static bool
find_receipt(TupleTableSlot *row, int segment, void *arg)
{
	Candidates *candidates = arg;
	Candidate	wanted;
	Candidate  *found;
	Receipt		receipt;

	if (!log_row_is_receipt(row))
		return true;
	log_row_receipt(row, &receipt);
	wanted.key = receipt.key;
	found = bsearch(&wanted, candidates->items, candidates->n, sizeof(Candidate), compare_keys);
	if (found == NULL)
		return true;
	while (found > candidates->items && compare_keys(found - 1, &wanted) == 0)
		found--;
	for (; found < candidates->items + candidates->n && compare_keys(found, &wanted) == 0; found++)
		found->is_claimed_again = true;
	return true;
}

/* Orders by key; for qsort() and bsearch(). */
static int
compare_keys(const void *a, const void *b)
{
	return memcmp(&((const Candidate *) a)->key, &((const Candidate *) b)->key, sizeof(pg_uuid_t));
}
