/*
 * store.h
 *		Deduplication stores, in which message ids outlive their records.
 */
#ifndef OUTBOX_STORE_H
#define OUTBOX_STORE_H

#include "utils/uuid.h"

#include "src/redis/socket_wait.h"
#include "src/store/store_failure.h"

/* An id that is to be remembered. */
typedef struct StoreKey
{
	pg_uuid_t	key;
	int64		retention;		/* microseconds; ignored by a PostgreSQL
								 * store, which has its own */
} StoreKey;

#define STORE_WATERMARK_BYTES	96
#define STORE_PARTS		16		/* of a store at most; each loses its newest
								 * ids by itself */

/* A watermark for each part that has one; empty = none. */
typedef struct StoreWatermarks
{
	char		part[STORE_PARTS][STORE_WATERMARK_BYTES];
} StoreWatermarks;

/* The watermarks that are compared and written when ids are added. */
typedef struct StoreComparison
{
	const char *client;			/* whose they are */
	const StoreWatermarks *expected;	/* must be there, otherwise nothing is
										 * added */
	const StoreWatermarks *next;	/* to be written */
} StoreComparison;

/* What a store reports about itself. */
typedef struct StoreReport
{
	int			nparts;			/* that keep a watermark; 0 = it keeps what it
								 * acknowledged */
	StoreWatermarks watermarks; /* that we wrote last */
	int64		retention;		/* microseconds; 0 = as long as it was told
								 * for each id */
	bool		evicts;			/* it may drop ids when its memory is full */
} StoreReport;

extern const char *store_url_problem(const char *url);
extern void store_check(const char *url);
extern void store_check_privilege(void);

extern void store_attend_with(LinkAttend attend);
extern bool store_contains(const char *url, const pg_uuid_t *key);
extern bool store_remove(const char *url, const pg_uuid_t *key);
extern bool store_add(const char *url, const StoreKey *keys, int n, const StoreComparison *comparison,
					  StoreFailure *failure);
extern bool store_differs_in_password(const char *one, const char *other);
extern void store_close(const char *url);
extern bool store_inspect(const char *url, const char *client, StoreReport *report, StoreFailure *failure);

#endif							/* OUTBOX_STORE_H */
