/*
 * store.h
 *		Deduplication stores, in which message ids outlive their records.
 */
#ifndef OUTBOX_STORE_H
#define OUTBOX_STORE_H

#include "utils/uuid.h"

#include "src/store/store_failure.h"

/* An id that is to be remembered. */
typedef struct StoreKey
{
	pg_uuid_t	key;
	int64		retention;		/* microseconds; ignored by a PostgreSQL
								 * store, which has its own */
} StoreKey;

#define STORE_WATERMARK_BYTES	64

/* The watermark that is compared and written when ids are added. */
typedef struct StoreWatermark
{
	const char *client;			/* the instance that it belongs to */
	const char *expected;		/* must be there, otherwise nothing is added;
								 * empty = none */
	const char *watermark;		/* to be written; empty = leave it as it is */
} StoreWatermark;

/* What a store reports about itself. */
typedef struct StoreReport
{
	bool		keeps_watermark;
	char		watermark[STORE_WATERMARK_BYTES];	/* that we wrote last, if
													 * it keeps one; empty =
													 * none */
	int64		retention;		/* microseconds; 0 = as long as it was told
								 * for each id */
	bool		evicts;			/* it may drop ids when its memory is full */
} StoreReport;

extern const char *store_url_problem(const char *url);
extern void store_check(const char *url);
extern char *store_masked(const char *url);

extern void store_attend_with(LinkAttend attend);
extern bool store_contains(const char *url, const pg_uuid_t *key);
extern bool store_remove(const char *url, const pg_uuid_t *key);
extern bool store_add(const char *url, const StoreKey *keys, int n, const StoreWatermark *watermark,
					  StoreFailure *failure);
extern bool store_inspect(const char *url, const char *client, StoreReport *report, StoreFailure *failure);

#endif							/* OUTBOX_STORE_H */
