/*
 * inheritance.c
 *		Which messages of a copied database are ours to send.
 *
 * Called by the dispatcher of a copy when it starts for the first time. Each
 * message names the database that it was enqueued in. What its original will
 * send is put behind us; what nobody else has is left to us (heir.c).
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "bgworker/heir.h"
#include "bgworker/publish/inheritance.h"
#include "src/log/log.h"

#define FIRST_SIZE	1024

/* Transactions that have written messages of our own. */
typedef struct OwnTransactions
{
	FullTransactionId *txs;
	uint32		n;
	uint32		size;
	const Instance *instance;	/* that we were */
	Oid			asked;			/* database that was asked about last */
	bool		is_ours;		/* whether its messages are ours to send */
} OwnTransactions;

static bool is_left_to_us(OwnTransactions *own, Oid database);
static bool note_own(TupleTableSlot *row, int segment, void *arg);

/*
 * Puts behind us for good, without sending it, all that was committed in other
 * databases; for a copy whose original sends it. The instance is that of the
 * original, still. Needs an open transaction.
 *
 * The window that is appended ends before those that were committed here: its
 * snapshot takes them for being still in progress. So they are found like any
 * other transaction that ends later than younger ones.
 */
void
inheritance_skip_foreign(Position *position, const Instance *instance)
{
	WindowRows	none = {0};
	OwnTransactions own = {.size = FIRST_SIZE, .instance = instance};
	SnapshotValue *now = snapshot_value_now();

	own.txs = palloc(own.size * sizeof(FullTransactionId));
	log_scan(GetActiveSnapshot(), position->looked, now, note_own, &own);
	position_append_window(position, snapshot_value_without(now, own.txs, own.n), &none);
	position->first_window = position->opened.number;
	position_note_all_published(position);
}

/*
 * Check whether what was enqueued in a database is ours to send. A copy of a
 * copy has also what was enqueued in that one before its dispatcher ever ran;
 * if it is gone, nobody else has that.
 */
static bool
is_left_to_us(OwnTransactions *own, Oid database)
{
	if (database != own->asked)
	{
		own->asked = database;
		own->is_ours = database != own->instance->database &&
			(database == MyDatabaseId || !SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database))) &&
			heir_claim(&own->instance->id, database);
	}
	return own->is_ours;
}

/* Rows of one transaction mostly come one after another. */
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
