/*
 * postgres_link.h
 *		One connection to a PostgreSQL that never blocks without a deadline.
 */
#ifndef OUTBOX_POSTGRES_LINK_H
#define OUTBOX_POSTGRES_LINK_H

#include "src/store/store_kind.h"

typedef struct PostgresLink PostgresLink;

extern PostgresLink *postgres_link_open(const char *url, LinkAttend attend, StoreFailure *failure);
extern void postgres_link_close(PostgresLink *link);
extern bool postgres_link_ask(PostgresLink *link, const char *query, Oid type, const char *argument,
							  char *answer, size_t size, StoreFailure *failure);

#endif							/* OUTBOX_POSTGRES_LINK_H */
