/*
 * targets.h
 *		Where the ids of each endpoint are propagated to.
 */
#ifndef OUTBOX_TARGETS_H
#define OUTBOX_TARGETS_H

struct StorePropagation;

/* An endpoint, and where its ids were propagated to when the endpoints were read. */
typedef struct Target
{
	char	   *endpoint;
	struct StorePropagation *store; /* NULL = none */
	bool		is_new_in_store;	/* the store is getting its ids of before */
	int64		store_retention;
	Oid			table;			/* InvalidOid = none */
} Target;

extern uint64 target_hash(const char *endpoint, const char *store, Oid table);
extern void targets_begin_listing(void);
extern void targets_add(const Target *target);
extern void targets_end_listing(void);
extern const Target *target_find(const char *endpoint);
extern const Target *target_before(const char *endpoint);

#endif							/* OUTBOX_TARGETS_H */
