/*
 * postgres_failure.h
 *		Why a PostgreSQL store could not be used, from what libpq knows of it.
 */
#ifndef OUTBOX_POSTGRES_FAILURE_H
#define OUTBOX_POSTGRES_FAILURE_H

#include "libpq-fe.h"

#include "src/store/store_failure.h"

extern void postgres_failure_of_result(StoreFailure *failure, const PGresult *result);
extern void postgres_failure_of_connection(StoreFailure *failure, PGconn *conn);

#endif							/* OUTBOX_POSTGRES_FAILURE_H */
