/*
 * page.h
 *		Messages that are read together, in the form in which they are sent.
 */
#ifndef OUTBOX_PAGE_H
#define OUTBOX_PAGE_H

#include "bgworker/publish/batch.h"
#include "bgworker/window/position.h"

/* Limits of a page. */
typedef struct PageSize
{
	int			messages;		/* in a batch; the page ends when one is full */
	int			rows;			/* that are looked at for them */
	size_t		bytes;			/* of their bodies and headers */
} PageSize;

typedef struct MessagePage
{
	int64		next;			/* row of the run that follows it */
	int64		settled;		/* how many messages waited when the last
								 * window that ends in it had been looked at;
								 * -1 = none ends in it */
	int64		last;			/* last row that is in one of its batches */
	int64		left_out;		/* first window that is not published of which
								 * it leaves out messages; 0 = none */
	size_t		bytes;			/* of the commands */
	int			nbatches;		/* one for each lane that it has messages for */
	int			answered;		/* the first so many of them */
	int			room;			/* for so many */
	Batch	   *batches;
} MessagePage;

extern void page_init(void);
extern bool page_make(MessagePage *page, PageSize size, const ScriptCall *call, Run *run, int64 first, const Position *position);
extern bool page_defer_rows(Run *run, int64 published, const int64 *rows, int n, const char *error);

#endif							/* OUTBOX_PAGE_H */
