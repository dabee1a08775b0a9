/*
 * mark_statement.h
 *		Marks the records of some ids in a custom record table as dispatched.
 */
#ifndef OUTBOX_MARK_STATEMENT_H
#define OUTBOX_MARK_STATEMENT_H

/* The result of marking records. */
typedef enum Marking
{
	MARKING_DONE,				/* all records that exist are marked */
	MARKING_INCOMPLETE,			/* some are locked: try again */
	MARKING_FAILED,				/* the table cannot be used; see the error */
	MARKING_GONE				/* the endpoint has another one, or none */
} Marking;

extern Marking mark_statement_execute(const char *endpoint, Oid table, char **msgids, int n, bool is_repeated);

#endif							/* OUTBOX_MARK_STATEMENT_H */
