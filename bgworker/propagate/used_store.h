/*
 * used_store.h
 *		A deduplication store that some endpoint names.
 */
#ifndef OUTBOX_USED_STORE_H
#define OUTBOX_USED_STORE_H

#include "bgworker/propagate/receipts.h"
#include "bgworker/window/position.h"
#include "src/problem.h"
#include "src/store/store.h"

#define USED_STORE_KEYS		1000	/* added in one round trip */
#define USED_STORE_CHECK_MS 3000	/* between two checks of the watermark */

/* A store that some endpoint names. */
typedef struct UsedStore
{
	struct UsedStore *next;		/* in the list of all */
	char	   *url;
	bool		wanted;			/* an endpoint still names it */
	int64		retention;		/* the longest of these endpoints */
	int64		propagated;		/* newest window whose receipts it has */
	ReceiptReader reader;		/* of the next ones */
	StoreKey	keys[USED_STORE_KEYS];	/* of these, to be added next */
	int			n;
	bool		lacks_watermark;	/* ids were added since the last watermark */
	bool		sound;			/* it was there, and had its watermark */
	bool		refuses;		/* adding to it failed, whatever it says of
								 * itself */
	bool		is_away;		/* it cannot be used, and the log says so */
	TimestampTz next_check;
	int			retry_ms;
	char		problem[2 * PROBLEM_BYTES]; /* may be longer than what is
											 * shown; empty = none */
	bool		knows_watermark;
	int			nparts;
	StoreWatermarks watermarks; /* that must be there */
	bool		catching_up;	/* ids are added again that it has lost */
	TimestampTz settled_at;		/* when it was first seen, or had all lost ids
								 * again */
} UsedStore;

extern void used_store_init(const char *name);
extern UsedStore *used_store_first(void);
extern UsedStore *used_store_find(const char *url, int64 propagated);
extern void used_store_forget_unused(void);
extern void used_store_check(UsedStore *store, Position *position);
extern bool used_store_has_more(const UsedStore *store, const Position *position);
extern bool used_store_propagate(UsedStore *store, Position *position);

#endif							/* OUTBOX_USED_STORE_H */
