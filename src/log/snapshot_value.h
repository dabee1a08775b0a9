/*
 * snapshot_value.h
 *		Snapshots as values that can be stored.
 */
#ifndef OUTBOX_SNAPSHOT_VALUE_H
#define OUTBOX_SNAPSHOT_VALUE_H

#include "access/transam.h"
#include "utils/xid8.h"

/* A value of type pg_snapshot, as it is stored; xip is sorted. */
typedef struct SnapshotValue
{
	int32		vl_len_;		/* do not touch directly */
	uint32		nxip;
	FullTransactionId xmin;
	FullTransactionId xmax;
	FullTransactionId xip[FLEXIBLE_ARRAY_MEMBER];
} SnapshotValue;

extern SnapshotValue *snapshot_value_now(void);
extern SnapshotValue *snapshot_value_latest(void);
extern SnapshotValue *snapshot_value_copy(const SnapshotValue *snapshot);
extern SnapshotValue *snapshot_value_without(const SnapshotValue *snapshot,
											 const FullTransactionId *txs, uint32 ntxs);
extern bool snapshot_value_sees(const SnapshotValue *snapshot, FullTransactionId tx);

#endif							/* OUTBOX_SNAPSHOT_VALUE_H */
