/*
 * pages_under_way.h
 *		The pages that are under way.
 */
#ifndef OUTBOX_PAGES_UNDER_WAY_H
#define OUTBOX_PAGES_UNDER_WAY_H

#include "bgworker/publish/page.h"

#define MAX_PAGES_UNDER_WAY	16	/* at most, where the way to Redis is long */

typedef struct PagesUnderWay
{
	int			n;
	size_t		bytes;			/* of these */
	MessagePage pages[MAX_PAGES_UNDER_WAY]; /* oldest first; the one behind
											 * them is the next to be made */
	int64	   *refused;		/* room for the places of a batch's messages
								 * that were refused */
} PagesUnderWay;

extern PagesUnderWay *pages_under_way_begin(int batch_size);
extern int	pages_under_way_allowed(const PagesUnderWay *under_way, int64 round_trip);
extern void pages_under_way_add(PagesUnderWay *under_way);
extern void pages_under_way_remove_oldest(PagesUnderWay *under_way);
extern void pages_under_way_clear(PagesUnderWay *under_way);

#endif							/* OUTBOX_PAGES_UNDER_WAY_H */
