/*
 * moment.h
 *		A snapshot of this moment, for tables of ours that are updated.
 *
 * SnapshotSelf would do for tables to which rows are only appended; in one that
 * is updated it can miss both versions of a row that changes meanwhile. An MVCC
 * snapshot cannot, but leaves predicate locks in a serializable transaction:
 * there the lesser evil is SnapshotSelf.
 */
#ifndef OUTBOX_MOMENT_H
#define OUTBOX_MOMENT_H

#include "access/xact.h"
#include "utils/snapmgr.h"

static inline Snapshot
moment_begin(void)
{
	return IsolationIsSerializable() ? SnapshotSelf : RegisterSnapshot(GetLatestSnapshot());
}

static inline void
moment_end(Snapshot snapshot)
{
	if (snapshot != SnapshotSelf)
		UnregisterSnapshot(snapshot);
}

#endif							/* OUTBOX_MOMENT_H */
