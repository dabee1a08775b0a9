/*
 * moment.h
 *		What is committed at this moment, for our tables that are updated.
 *
 * SnapshotSelf suffices for tables to which rows are only appended; in one that
 * is updated it can miss both versions of a row that is changed meanwhile. An
 * MVCC snapshot cannot, but a scan with it takes predicate locks in a
 * serializable transaction. There all versions of all rows are read, which
 * takes no locks, and each is checked against the snapshot.
 */
#ifndef OUTBOX_MOMENT_H
#define OUTBOX_MOMENT_H

#include "access/tableam.h"
#include "access/xact.h"
#include "utils/snapmgr.h"

typedef struct Moment
{
	Relation	table;
	Snapshot	snapshot;
	Snapshot	scan;			/* what to scan the table or its index with */
} Moment;

/* Takes the snapshot. */
static inline void
moment_begin(Moment *moment, Relation table)
{
	moment->table = table;
	moment->snapshot = RegisterSnapshot(GetLatestSnapshot());
	moment->scan = IsolationIsSerializable() ? SnapshotAny : moment->snapshot;
}

/* Check whether a row that the scan has found is visible. */
static inline bool
moment_shows(const Moment *moment, TupleTableSlot *row)
{
	return moment->scan == moment->snapshot ||
		table_tuple_satisfies_snapshot(moment->table, row, moment->snapshot);
}

/* Releases the snapshot. */
static inline void
moment_end(const Moment *moment)
{
	UnregisterSnapshot(moment->snapshot);
}

#endif							/* OUTBOX_MOMENT_H */
