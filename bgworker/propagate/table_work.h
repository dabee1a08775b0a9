/*
 * table_work.h
 *		One piece of work on a custom record table.
 */
#ifndef OUTBOX_TABLE_WORK_H
#define OUTBOX_TABLE_WORK_H

#include "utils/relcache.h"

#include "src/record/endpoint.h"
#include "src/record/record_table.h"

/* One statement on one table, and its result. */
typedef struct TableWork
{
	const Endpoint *endpoint;
	Relation	table;
	bool		is_locked;		/* by another session; nothing was done */
	RecordShape shape;
	char	  **msgids;			/* to be marked */
	int			nmsgids;
	bool		is_repeated;	/* their receipts may have been dealt with
								 * before */
	TimestampTz from;			/* to be deleted: dispatched since then */
	int64		rows;			/* deleted, or left unmarked */
	TimestampTz upto;			/* the newest deleted */
} TableWork;

typedef void (*TableWorkFunction) (TableWork *work);

extern bool table_work_run(TableWorkFunction function, TableWork *work, const char *endpoint, const char *activity);
extern const char *table_work_error(void);
extern void table_work_execute(const TableWork *work, const char *sql, int nargs, Oid *types, Datum *values,
							   int ncolumns, Datum *result);

#endif							/* OUTBOX_TABLE_WORK_H */
