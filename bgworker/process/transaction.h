/*
 * transaction.h
 *		Begins and ends the transactions of the workers.
 */
#ifndef OUTBOX_TRANSACTION_H
#define OUTBOX_TRANSACTION_H

/* Why transaction_begin() returned false. */
typedef enum Refusal
{
	REFUSAL_NONE,				/* it did not return false */
	REFUSAL_BUSY,				/* the extension is being dropped or altered */
	REFUSAL_GONE,				/* there is no extension */
	REFUSAL_ANOTHER				/* it was dropped and created again */
} Refusal;

/* A statement that is planned once and run often. */
#define STATEMENT_ARGS	7

typedef struct Statement
{
	const char *sql;
	int			nargs;
	Oid			types[STATEMENT_ARGS];
	struct _SPI_plan *plan;		/* NULL at first */
} Statement;

extern void transaction_init(bool (*attend) (void));
extern bool transaction_begin(const char *activity);
extern bool transaction_was_refused(void);
extern Refusal transaction_refusal(void);
extern void transaction_commit(void);
extern bool transaction_confirm(void);
extern void transaction_commit_local(void);
extern void transaction_commit_at_once(void);
extern void transaction_abort(void);
extern void transaction_commit_async(void);
extern void transaction_tell_rings(void);

extern int64 transaction_execute(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls);
extern int64 transaction_query(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls);
extern int64 transaction_run(Statement *statement, Datum *values, const char *nulls);

#endif							/* OUTBOX_TRANSACTION_H */
