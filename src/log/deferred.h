/*
 * deferred.h
 *		Messages that wait outside of the log because a destination refused them.
 */
#ifndef OUTBOX_DEFERRED_H
#define OUTBOX_DEFERRED_H

#include "src/log/log.h"

typedef enum DeferredState
{
	DEFERRED_SCHEDULED,			/* until next_attempt */
	DEFERRED_WAITING,			/* for the next attempt, or behind another one */
	DEFERRED_DEAD,				/* given up */
	DEFERRED_RETURNED,			/* a tombstone: another row of the log counts */
	DEFERRED_DISCARDED,			/* a tombstone: nothing counts */
	DEFERRED_HELD				/* until a dead one of its key is retried or
								 * discarded */
} DeferredState;

/* A row of outbox.deferred. */
typedef struct Deferred
{
	Message		message;		/* tx is not kept */
	DeferredState state;
	FullTransactionId returned_tx;	/* returned: the row of the log that
									 * counts */
	int			attempts;
	TimestampTz next_attempt;
	text	   *last_error;		/* or NULL */
} Deferred;

/* Ids of messages that have no row: those from `from` on that are below `end`. */
typedef struct DeferredGap
{
	int64		from;
	int64		end;
} DeferredGap;

/* Reads a row; returns false to end the scan. */
typedef bool (*DeferredReader) (const Deferred *row, void *arg);

extern void deferred_read_row(TupleTableSlot *slot, Deferred *row);
extern void deferred_scan(DeferredReader reader, void *arg);
extern bool deferred_record_waits(const pg_uuid_t *key, const SnapshotValue *sent, const DestinationSet *left_out, bool *is_dead);
extern int64 deferred_append(const Message *message, int log_segment, DeferredState state,
							 int attempts, TimestampTz next_attempt, const char *error);
extern void deferred_end_append(void);
extern void deferred_abort_append(void);
extern bool deferred_find(int64 id, FullTransactionId *returned_tx, int *attempts);
extern bool deferred_find_next(DeferredGap *gap, int64 id, FullTransactionId *returned_tx);
extern int64 deferred_highest_id(void);
extern const char *deferred_state_name(DeferredState state);

#endif							/* OUTBOX_DEFERRED_H */
