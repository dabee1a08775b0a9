/*
 * copied_messages.c
 *		Which messages of a copied database are ours to send.
 *
 * Called by the dispatcher of a copy when it starts for the first time. Each
 * message names the database that it was enqueued in. What the original will
 * send is skipped; what no other database has is ours to send (database_heir.c).
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "bgworker/identity/database_heir.h"
#include "bgworker/window/copied_messages.h"
#include "bgworker/window/window_opening.h"
#include "src/log/log.h"

#define FIRST_SIZE	1024

/* Transactions that have written messages that are ours to send. */
typedef struct OwnTransactions
{
	FullTransactionId *txs;
	uint32		n;
	uint32		size;
	const Instance *instance;	/* that the original is */
	Oid			asked;			/* database that was looked up last */
	bool		is_ours;		/* whether its messages are ours to send */
} OwnTransactions;

static bool is_left_to_us(OwnTransactions *own, Oid database);
static bool note_own(TupleTableSlot *row, int segment, void *arg);

/*
 * Skips for good, without sending it, everything that was committed in other
 * databases; for a copy whose original sends it. The instance still is that of
 * the original. Needs an open transaction.
 *
 * The window that is appended ends before the transactions that were committed
 * here: its snapshot treats them as still in progress. So they are found like
 * any other transaction that ends later than younger ones.
 */
void
copied_messages_skip_foreign(Position *position, const Instance *instance)
{
	OwnTransactions own = {.size = FIRST_SIZE, .instance = instance};
	SnapshotValue *now = snapshot_value_now();

	own.txs = palloc(own.size * sizeof(FullTransactionId));
	log_scan(InvalidSnapshot, position->looked, now, note_own, &own);
	window_opening_empty(position, snapshot_value_without(now, own.txs, own.n));
	position->first_window = position->opened.number;
	position_note_all_published(position);
}

/*
 * Check whether messages enqueued in a database are ours to send. A copy of a
 * copy also has what was enqueued in the first copy before its dispatcher ever
 * ran; if that database is gone, no other database has these messages.
 */
static bool
is_left_to_us(OwnTransactions *own, Oid database)
{
	if (database != own->asked)
	{
		own->asked = database;
		own->is_ours = database != own->instance->database &&
			(database == MyDatabaseId || !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database))) &&
			database_heir_claim(&own->instance->id, database);
	}
	return own->is_ours;
}

/* Notes the transaction of a row if it is ours. Rows of one transaction usually follow each other. */
static bool
note_own(TupleTableSlot *row, int segment, void *arg)
{
	OwnTransactions *own = arg;
	FullTransactionId tx = log_row_tx(row);

	if (!is_left_to_us(own, log_row_database(row)) ||
		(own->n > 0 && FullTransactionIdEquals(own->txs[own->n - 1], tx)))
		return true;
	if (own->n == own->size)
	{
		own->size *= 2;
		own->txs = repalloc_huge(own->txs, own->size * sizeof(FullTransactionId));
	}
	own->txs[own->n++] = tx;
	return true;
}
