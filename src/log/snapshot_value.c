/*
 * snapshot_value.c
 *		Snapshots as values that can be stored: which transactions had ended.
 *
 * Called by everything that asks whether messages are in a window. The layout is that of
 * PostgreSQL's type pg_snapshot.
 */
#include "postgres.h"

#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"

#include "src/compat.h"
#include "src/log/snapshot_value.h"

static int	compare_tx(const void *a, const void *b);

/*
 * Returns the snapshot of this moment, palloc'd. Needs an active snapshot that was
 * just taken.
 */
SnapshotValue *
snapshot_value_now(void)
{
	return (SnapshotValue *) DatumGetPointer(DirectFunctionCall1(pg_current_snapshot, (Datum) 0));
}

/* Returns the snapshot of this moment, palloc'd, whatever the isolation level. */
SnapshotValue *
snapshot_value_latest(void)
{
	SnapshotValue *latest;

	PushActiveSnapshot(GetLatestSnapshot());
	latest = snapshot_value_now();
	PopActiveSnapshot();
	return latest;
}

/* Returns a palloc'd copy. */
SnapshotValue *
snapshot_value_copy(const SnapshotValue *snapshot)
{
	SnapshotValue *copy = palloc(VARSIZE(snapshot));

	memcpy(copy, snapshot, VARSIZE(snapshot));
	return copy;
}

/*
 * Returns a palloc'd copy to which some transactions are still in progress.
 * They are below the snapshot's xmax; the same one may be named repeatedly.
 */
SnapshotValue *
snapshot_value_without(const SnapshotValue *snapshot, const FullTransactionId *txs, uint32 ntxs)
{
	Size		size = offsetof(SnapshotValue, xip) +
		((Size) snapshot->nxip + ntxs) * sizeof(FullTransactionId);
	SnapshotValue *result = palloc(size);
	uint32		n = 0;

	*result = *snapshot;
	memcpy(result->xip, snapshot->xip, snapshot->nxip * sizeof(FullTransactionId));
	memcpy(result->xip + snapshot->nxip, txs, ntxs * sizeof(FullTransactionId));
	qsort(result->xip, snapshot->nxip + ntxs, sizeof(FullTransactionId), compare_tx);
	for (uint32 i = 0; i < snapshot->nxip + ntxs; i++)
	{
		if (n == 0 || !FullTransactionIdEquals(result->xip[n - 1], result->xip[i]))
			result->xip[n++] = result->xip[i];
	}

	result->nxip = n;
	if (n > 0 && FullTransactionIdPrecedes(result->xip[0], result->xmin))
		result->xmin = result->xip[0];
	SET_VARSIZE(result, offsetof(SnapshotValue, xip) + (Size) n * sizeof(FullTransactionId));
	return result;
}

/* Check whether a transaction had ended when the snapshot was taken. */
bool
snapshot_value_sees(const SnapshotValue *snapshot, FullTransactionId tx)
{
	if (FullTransactionIdPrecedes(tx, snapshot->xmin))
		return true;
	if (!FullTransactionIdPrecedes(tx, snapshot->xmax))
		return false;
	return bsearch(&tx, snapshot->xip, snapshot->nxip, sizeof(tx), compare_tx) == NULL;
}

/* For qsort() and bsearch(). */
static int
compare_tx(const void *a, const void *b)
{
	uint64		left = U64FromFullTransactionId(*(const FullTransactionId *) a);
	uint64		right = U64FromFullTransactionId(*(const FullTransactionId *) b);

	return left < right ? -1 : left > right;
}
