/*
 * store_kind.h
 *		The interface of each kind of store; for store.c and the kinds themselves.
 */
#ifndef OUTBOX_STORE_KIND_H
#define OUTBOX_STORE_KIND_H

#include "src/store/store.h"

/*
 * One kind of store. `connection` is what connect() has made; each call on it takes
 * one round trip, and fails, with the reason, if the store cannot be reached within
 * the timeouts or is not the one to be asked. After a failure, or an error that was
 * raised meanwhile, the connection can only be closed.
 */
typedef struct StoreKind
{
	/*
	 * Checks whether a URL has a scheme of this kind, whether it is valid or
	 * not.
	 */
	bool		(*has_scheme) (const char *url);

	/* Returns what is wrong with such a URL, or NULL. Never quotes it. */
	const char *(*url_problem) (const char *url);

	/* Checks whether two valid URLs are the same but for passwords. */
	bool		(*differs_in_password) (const char *one, const char *other);

	void	   *(*connect) (const char *url, LinkAttend attend, StoreFailure *failure);
	void		(*close) (void *connection);
	bool		(*contains) (void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
	bool		(*remove) (void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
	bool		(*add) (void *connection, const StoreKey *keys, int n, const StoreComparison *comparison,
						StoreFailure *failure);
	bool		(*inspect) (void *connection, const char *client, StoreReport *report, StoreFailure *failure);
} StoreKind;

extern const StoreKind store_redis;
extern const StoreKind store_postgres;

#endif							/* OUTBOX_STORE_KIND_H */
