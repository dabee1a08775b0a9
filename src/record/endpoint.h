/*
 * endpoint.h
 *		The settings of endpoints.
 */
#ifndef OUTBOX_ENDPOINT_H
#define OUTBOX_ENDPOINT_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "src/record/record_mapping.h"
#include "src/settings.h"

/* The endpoint that exists without a row in outbox.endpoint. */
#define DEFAULT_ENDPOINT	"default"

typedef struct Endpoint
{
	char	   *name;
	Concurrency concurrency;
	int64		retention;		/* microseconds; of its records here */
	int64		kept;			/* of its ids, here or in dedup_store, by the
								 * settings that the dispatcher has */
	int64		store_retention;	/* of its ids in dedup_store; 0 = it has
									 * none */
	RecordMapping mapping;		/* custom record table for its records */
	char	   *dedup_store;	/* URL, or NULL; like the names in mapping
								 * good until the next endpoint_get() */
} Endpoint;

extern void endpoint_init(void);
extern Endpoint endpoint_get(const char *name);
extern List *endpoint_list(void);
extern uint64 endpoint_readings(void);
extern void endpoint_check_place(const char *name, const RecordMapping *mapping, const char *dedup_store);
extern int64 endpoint_memory(const Endpoint *endpoint);
extern int64 endpoint_longest_retention(void);
extern bool endpoint_find(const char *name, Endpoint *endpoint);
extern void endpoint_each(void (*visit) (const Endpoint *endpoint, void *arg), void *arg);

#endif							/* OUTBOX_ENDPOINT_H */
