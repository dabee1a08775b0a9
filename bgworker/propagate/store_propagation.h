/*
 * store_propagation.h
 *		Propagating ids to deduplication stores.
 */
#ifndef OUTBOX_STORE_PROPAGATION_H
#define OUTBOX_STORE_PROPAGATION_H

#include "bgworker/propagate/receipts.h"
#include "bgworker/window/position.h"
#include "src/problem.h"
#include "src/store/store.h"
#include "src/unique_id.h"

#define STORE_PROPAGATION_KEYS		1000	/* added in one round trip */
#define STORE_PROPAGATION_CHECK_MS 3000 /* between two checks of the watermark */

/* A store that some endpoint names, and how far it has got. */
typedef struct StorePropagation
{
	struct StorePropagation *next;	/* in the list of all */
	char	   *url;			/* with which it is tried */
	List	   *urls;			/* that endpoints name: the same but for
								 * passwords */
	char	   *masked;			/* without passwords: as it may be shown */
	char		client[UNIQUE_ID_BYTES + 17];	/* the name of our watermarks
												 * there */
	int64		retention;		/* the longest of these endpoints */
	uint64		endpoints;		/* hash of their names */
	bool		is_new;			/* by the last listing an endpoint has it that
								 * did not have it before */
	int64		propagated;		/* newest window whose receipts it has */
	ReceiptReader reader;		/* of the next ones */
	StoreKey	keys[STORE_PROPAGATION_KEYS];	/* of these, to be added next */
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
	int64		lacks_upto;		/* ids up to the end of this window are added
								 * that it has lost, or never had; 0 = none */
	int64		passed;			/* newest window that it had when it went back
								 * for an endpoint that is new in it */
	bool		lacked;			/* it has lost ids, or lacked some of that
								 * endpoint */
	TimestampTz settled_at;		/* when it was first seen, or had all lost ids
								 * again */
} StorePropagation;

extern void store_propagation_init(const char *name);
extern StorePropagation *store_propagation_first(void);
extern StorePropagation *store_propagation_find(const char *url, int64 propagated);
extern void store_propagation_begin_listing(void);
extern void store_propagation_end_listing(void);
extern void store_propagation_check(StorePropagation *store, Position *position);
extern bool store_propagation_has_more(const StorePropagation *store, const Position *position);
extern bool store_propagation_run(StorePropagation *store, Position *position);

#endif							/* OUTBOX_STORE_PROPAGATION_H */
