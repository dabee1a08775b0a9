/*
 * window.h
 *		Windows: the messages committed between two snapshots.
 */
#ifndef OUTBOX_WINDOW_H
#define OUTBOX_WINDOW_H

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "utils/snapshot.h"
#include "utils/uuid.h"
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

/* A row of window_N. */
typedef struct Window
{
	int64		number;
	pg_uuid_t	uuid;
	FullTransactionId tx;
	SnapshotValue *snapshot;
	TimestampTz opened_at;
	int64		published;
	int64		propagated;	/* newest window whose receipts were propagated */
	int64		messages;		/* in all windows up to the end of this one */
	TimestampTz oldest;			/* 0 = it holds no message */
} Window;

extern SnapshotValue *snapshot_value_now(void);
extern SnapshotValue *snapshot_value_latest(void);
extern SnapshotValue *snapshot_value_copy(const SnapshotValue *snapshot);
extern SnapshotValue *snapshot_value_without(const SnapshotValue *snapshot,
											 const FullTransactionId *txs, uint32 ntxs);
extern bool snapshot_value_sees(const SnapshotValue *snapshot, FullTransactionId tx);

extern bool window_fetch(int64 number, Window *window);
extern bool window_newest(Window *window);
extern bool window_at(int64 number, Window *window);
extern bool window_after(int64 number, Window *window);
extern int64 window_oldest_number(void);
extern void window_append(const Window *window, int segment);

extern bool window_published(Window *window);
extern bool window_propagated(Window *window, bool to_tables);
extern bool window_published_in(Snapshot snapshot, Window *window);
extern bool window_handed_over_in(Snapshot snapshot, Window *window);

#endif							/* OUTBOX_WINDOW_H */
