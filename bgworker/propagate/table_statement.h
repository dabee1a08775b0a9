/*
 * table_statement.h
 *		A statement on a custom record table.
 */
#ifndef OUTBOX_TABLE_STATEMENT_H
#define OUTBOX_TABLE_STATEMENT_H

#include "utils/relcache.h"

#include "src/record/endpoint.h"
#include "src/record/record_table.h"

/* One statement on one table, and its result. */
typedef struct TableStatement
{
	const Endpoint *endpoint;
	Oid			wanted;			/* the table that it must have */
	bool		is_gone;		/* it has another one, or none; nothing was
								 * done */
	Relation	table;
	bool		is_locked;		/* by another session; nothing was done */
	RecordShape shape;
	char	  **msgids;			/* to be marked */
	int			nmsgids;
	bool		is_repeated;	/* their receipts may have been dealt with
								 * before */
	TimestampTz from;			/* to be deleted: dispatched since then */
	int			batch;			/* ... no more than so many */
	int64		rows;			/* deleted, or left unmarked */
	int64		tried;			/* that were to be deleted */
	TimestampTz upto;			/* the newest of these */
} TableStatement;

typedef void (*TableStatementFunction) (TableStatement *statement);

extern bool table_statement_run(TableStatementFunction function, TableStatement *statement, const char *endpoint, const char *activity);
extern const char *table_statement_error(void);
extern void table_statement_execute(const TableStatement *statement, const char *sql, int nargs, Oid *types, Datum *values,
									int ncolumns, Datum *result);

#endif							/* OUTBOX_TABLE_STATEMENT_H */
