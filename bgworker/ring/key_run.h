/*
 * key_run.h
 *		The keys of a segment of records or of the history, in ascending order.
 */
#ifndef OUTBOX_KEY_RUN_H
#define OUTBOX_KEY_RUN_H

#include "access/genam.h"
#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/uuid.h"

#include "src/ring/ring.h"

typedef struct KeyRun
{
	RingKind	kind;
	Relation	table;
	Relation	index;
	IndexScanDesc scan;
	pg_uuid_t	from;			/* where the scan begins, which keeps a
								 * pointer to it */
	TupleTableSlot *row;
	const pg_uuid_t *keys;		/* keys of the current row, if it is one of
								 * the history */
	int			nkeys;
	int			next;
	pg_uuid_t	key;			/* the current key */
	bool		ended;			/* there is no current key */
} KeyRun;

extern void key_run_open(KeyRun *run, RingKind kind, int segment, const pg_uuid_t *after);
extern void key_run_advance(KeyRun *run);
extern void key_run_close(KeyRun *run);

#endif							/* OUTBOX_KEY_RUN_H */
