/*
 * postgres_url.h
 *		The URL of a PostgreSQL database, as parameters for libpq.
 */
#ifndef OUTBOX_POSTGRES_URL_H
#define OUTBOX_POSTGRES_URL_H

#include "src/store/store_kind.h"

#define POSTGRES_MAX_OPTIONS	64

/* Names and values for PQconnectStartParams(); in the caller's memory. */
typedef struct PostgresUrl
{
	const char *names[POSTGRES_MAX_OPTIONS + 1];
	const char *values[POSTGRES_MAX_OPTIONS + 1];
	int			n;
	int			naddresses;		/* that were found; 0 = left to libpq */
	char	   *hosts;			/* of those that are still to be dialed, each
								 * a */
	char	   *ports;			/* list with commas */
	char	   *addresses;
} PostgresUrl;

extern bool postgres_url_has_scheme(const char *text);
extern const char *postgres_url_problem(const char *text);
extern bool postgres_url_differs_in_password(const char *one, const char *other);

/* Not inlined: gcc would warn that their variables do not survive a longjmp. */
extern pg_noinline bool postgres_url_parse(const char *text, PostgresUrl *url);
extern pg_noinline bool postgres_url_resolve(PostgresUrl *url, TimestampTz deadline, LinkAttend attend, StoreFailure *failure);
extern void postgres_url_limit(PostgresUrl *url);
extern void postgres_url_next_address(PostgresUrl *url);

#endif							/* OUTBOX_POSTGRES_URL_H */
