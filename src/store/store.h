/*
 * store.h
 *		Deduplication stores: where message ids outlive their records.
 */
#ifndef OUTBOX_STORE_H
#define OUTBOX_STORE_H

#include "utils/uuid.h"

#include "src/redis/redis_link.h"

/* An id that is to be remembered. */
typedef struct StoreKey
{
	pg_uuid_t	key;
	int64		retention;		/* microseconds; a PostgreSQL has one of its
								 * own */
} StoreKey;

/* Why something could not be done. Holds no password. */
typedef struct StoreFailure
{
	int			sqlstate;
	char		text[LINK_ERROR_BYTES];
} StoreFailure;

#define STORE_MARK_BYTES	64

/* What is left in a store behind ids, if it keeps marks. */
typedef struct StoreMark
{
	const char *client;			/* in whose name */
	const char *expected;		/* is there; else nothing is added. Empty =
								 * none */
	const char *mark;			/* to be there; empty = as it is */
} StoreMark;

/* What a store tells about itself. */
typedef struct StoreReport
{
	bool		keeps_marks;
	char		mark[STORE_MARK_BYTES]; /* what we left there last, if it
										 * keeps marks; empty = nothing */
	int64		retention;		/* microseconds; 0 = as long as it is told to */
	bool		evicts;			/* it may drop ids when its memory is full */
} StoreReport;

extern const char *store_url_problem(const char *url);
extern void store_check(const char *url);
extern char *store_masked(const char *url);

extern void store_attend_with(LinkAttend attend);
extern bool store_contains(const char *url, const pg_uuid_t *key);
extern bool store_remove(const char *url, const pg_uuid_t *key);
extern bool store_add(const char *url, const StoreKey *keys, int n, const StoreMark *mark,
					  StoreFailure *failure);
extern bool store_inspect(const char *url, const char *client, StoreReport *report, StoreFailure *failure);

#endif							/* OUTBOX_STORE_H */
