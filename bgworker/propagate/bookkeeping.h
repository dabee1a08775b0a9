/*
 * bookkeeping.h
 *		Keeps the records in custom record tables: marks and expires them.
 */
#ifndef OUTBOX_BOOKKEEPING_H
#define OUTBOX_BOOKKEEPING_H

/* The result of marking records. */
typedef enum Marking
{
	MARKING_DONE,				/* all records that exist are marked */
	MARKING_INCOMPLETE,			/* some are locked: try again */
	MARKING_FAILED				/* the table cannot be used; see the error */
} Marking;

extern Marking bookkeeping_mark(const char *endpoint, char **msgids, int n, bool is_repeated);
extern void bookkeeping_begin_expiry(void);
extern bool bookkeeping_expire(void);
extern long bookkeeping_ms_until_expiry(void);
extern const char *bookkeeping_expiry_error(void);

#endif							/* OUTBOX_BOOKKEEPING_H */
