/*
 * record.h
 *		Records: the durable claims that an endpoint has processed a message.
 */
#ifndef OUTBOX_RECORD_H
#define OUTBOX_RECORD_H

#include "access/transam.h"
#include "utils/uuid.h"

#include "src/record/endpoint.h"
#include "src/ring/ring.h"

/* The incoming message that a record is about. */
typedef struct RecordName
{
	char	   *endpoint;
	char	   *msgid;
	pg_uuid_t	key;			/* hash of both */
	int64		retention;		/* microseconds; of a record here, or of the
								 * id in the store if that is longer */
	RecordMapping mapping;		/* custom record table, if it has one */
	char	   *dedup_store;	/* URL, or NULL */
	bool		is_restored;	/* it comes out of a dump: what is forgotten
								 * stays so */
	bool		has_receipt;	/* others than the ring are told of the
								 * record: it has a receipt in the log */
} RecordName;

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
 * this time a store did not have the id.
 */
typedef struct RecordMemo
{
	TimestampTz looked_at;		/* if there is a store: when the lookup began,
								 * by the wall clock */
	TimestampTz looked_at_clock;	/* and by clock_now() */
	bool		others_were_quiet;
	int64		generation;
} RecordMemo;

extern void record_name_make(RecordName *name, const Endpoint *endpoint, const char *msgid);
extern RecordLook record_look(const RecordName *name, RecordMemo *memo);
extern RecordLook record_claim(const RecordName *name, const RecordMemo *memo);
extern void record_append(const pg_uuid_t *key, const char *endpoint, const char *msgid);
extern void record_restore(const pg_uuid_t *key, const char *endpoint, const char *msgid);

#endif							/* OUTBOX_RECORD_H */
