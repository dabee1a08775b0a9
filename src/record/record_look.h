/*
 * record_look.h
 *		What a lookup of a record finds.
 */
#ifndef OUTBOX_RECORD_LOOK_H
#define OUTBOX_RECORD_LOOK_H

#include "access/transam.h"

/* The result of looking up a record. */
typedef enum RecordFate
{
	RECORD_ABSENT,
	RECORD_IN_PROGRESS,
	RECORD_COMMITTED,			/* or written by this transaction */
	RECORD_UNKNOWN				/* the rings have changed during the look */
} RecordFate;

typedef struct RecordLook
{
	RecordFate	fate;
	FullTransactionId tx;		/* that claimed it; invalid: not known, for it
								 * was restored, is compacted, in a store, or
								 * in a custom record table */
	TransactionId xmin;			/* the same or a subtransaction of it; in a
								 * custom record table, that wrote it last */
	TransactionId xmax;			/* in such a table: that is deleting or
								 * updating it now */
	bool		restored;		/* its messages came in another transaction */
	bool		in_table;		/* found in a custom record table */
	bool		dispatched;		/* in such a table: marked as dispatched */
} RecordLook;

/*
 * What a lookup has proved, so that a later claim need not look everywhere
 * again: at this generation no segment but the current one had writers, and at
 * this time a store did not have the id. What a transaction from `xmax` on has
 * committed it may not have seen.
 */
typedef struct RecordMemo
{
	TransactionId xmax;
	TimestampTz looked_at;		/* if there is a store: when the lookup began,
								 * by the wall clock */
	TimestampTz looked_at_clock;	/* and by clock_now() */
	bool		others_were_quiet;
	int64		generation;
} RecordMemo;

#endif							/* OUTBOX_RECORD_LOOK_H */
