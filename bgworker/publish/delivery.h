/*
 * delivery.h
 *		Windows that are being published.
 */
#ifndef OUTBOX_DELIVERY_H
#define OUTBOX_DELIVERY_H

#include "bgworker/publish/pages_under_way.h"
#include "bgworker/window/position.h"

typedef struct Delivery
{
	Position   *position;
	Run		   *run;
	int64		next;			/* first row that is not yet in a page */
	int64		current;		/* first row of the windows that were opened
								 * meanwhile */
	int			batch_size;		/* the setting may change meanwhile */
	bool		begun;			/* a page was made */
	WindowPlace tried;			/* last message of the page sent last; its
								 * window is 0 if none was */
	bool		refused;		/* a message of the previous page was refused */
	PagesUnderWay *under_way;
} Delivery;

extern void delivery_advance(const Delivery *delivery, int64 row, int64 settled);
extern bool delivery_follow_verdicts(Delivery *delivery);
extern bool delivery_defer_rows(const Delivery *delivery, const int64 *rows, int n, const char *error);

#endif							/* OUTBOX_DELIVERY_H */
