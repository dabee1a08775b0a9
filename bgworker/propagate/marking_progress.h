/*
 * marking_progress.h
 *		How far marking has got in each custom record table, and which records were locked.
 */
#ifndef OUTBOX_MARKING_PROGRESS_H
#define OUTBOX_MARKING_PROGRESS_H

#include "bgworker/propagate/id_list.h"
#include "bgworker/propagate/receipts.h"
#include "src/foreign_text.h"

/* The table of an endpoint. */
typedef struct MarkedTable
{
	struct MarkedTable *next;
	char	   *endpoint;
	Oid			table;
	bool		wanted;			/* the endpoint still has it */
	int64		read_upto;		/* newest window that is done, except for
								 * locked records */
	int64		marked;			/* newest window that is done completely */
	ReceiptReader reader;		/* of the next ones */
	IdList		page;			/* to be marked next */
	IdList		locked;			/* ids of locked records, to be tried again */
	bool		failed;			/* the table cannot be used, and is tried
								 * again at next_try */
	bool		has_error;		/* the last statement failed: `problem` is its
								 * error */
	TimestampTz next_try;		/* of locked records, or of the table */
	TimestampTz rests_until;	/* because its last statement took long */
	bool		is_unnamed;		/* the page has a receipt of a message that
								 * had been deferred */
	int			retry_ms;
	char		problem[FOREIGN_TEXT_BYTES];	/* empty = none */
} MarkedTable;

extern MarkedTable *marking_progress_first(void);
extern bool marking_progress_list(int64 start_at);
extern uint64 marking_progress_hash(void);
extern void marking_progress_forget(Oid oid);
extern void marking_progress_put_last(Oid oid);

#endif							/* OUTBOX_MARKING_PROGRESS_H */
