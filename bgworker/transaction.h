/*
 * transaction.h
 *		The bracket around everything that a worker does with tables.
 */
#ifndef OUTBOX_TRANSACTION_H
#define OUTBOX_TRANSACTION_H

/* Why transaction_begin() returned false. */
typedef enum Refusal
{
	REFUSAL_NONE,				/* it did not */
	REFUSAL_BUSY,				/* somebody is dropping or altering the
								 * extension */
	REFUSAL_GONE,				/* there is no extension */
	REFUSAL_ANOTHER				/* it was dropped and created anew */
} Refusal;

extern bool transaction_begin(const char *activity);
extern Refusal transaction_refusal(void);
extern void transaction_commit(void);
extern void transaction_commit_local(void);
extern void transaction_commit_later(void);
extern void transaction_abort(void);

extern int64 transaction_execute(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls);

#endif							/* OUTBOX_TRANSACTION_H */
