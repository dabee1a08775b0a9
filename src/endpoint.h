/*
 * endpoint.h
 *		The settings of endpoints.
 */
#ifndef OUTBOX_ENDPOINT_H
#define OUTBOX_ENDPOINT_H

#include "datatype/timestamp.h"

#include "src/settings.h"

typedef struct Endpoint
{
	char	   *name;
	Concurrency concurrency;
	int64		retention;		/* microseconds */
	Oid			record_table;	/* or InvalidOid */
	char	   *dedup_store;	/* URL, or NULL; good until the next
								 * endpoint_get() */
} Endpoint;

extern void endpoint_init(void);
extern Endpoint endpoint_get(const char *name);
extern int64 endpoint_longest_retention(void);

#endif							/* OUTBOX_ENDPOINT_H */
