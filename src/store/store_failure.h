/*
 * store_failure.h
 *		Why a deduplication store could not be used.
 */
#ifndef OUTBOX_STORE_FAILURE_H
#define OUTBOX_STORE_FAILURE_H

#include "src/foreign_text.h"

/* Contains no password. */
typedef struct StoreFailure
{
	int			sqlstate;
	char		text[LINK_ERROR_BYTES];
} StoreFailure;

extern void store_failure_set(StoreFailure *failure, int sqlstate, const char *format,...) pg_attribute_printf(3, 4);

#endif							/* OUTBOX_STORE_FAILURE_H */
