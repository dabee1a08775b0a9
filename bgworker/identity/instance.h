/*
 * instance.h
 *		Which instance this database is.
 */
#ifndef OUTBOX_INSTANCE_H
#define OUTBOX_INSTANCE_H

#include "utils/uuid.h"

#include "bgworker/identity/lease.h"

typedef struct Instance
{
	pg_uuid_t	id;				/* part of the names of our keys in Redis */
	Oid			database;		/* the database that the id was made for */
	int64		first_window;	/* nothing from before its end is sent again */
	char		publisher[LEASE_OWNER_BYTES];	/* who published last; empty =
												 * nothing was published yet */
	int64		layout_epoch;	/* of the last layout of partitions that Redis
								 * may have been told; 0 = none */
	bool		is_copy;		/* of a database that still exists */
} Instance;

extern void instance_load(Instance *instance);
extern void instance_become(Instance *instance, int64 first_window);
extern void instance_note_layout(Instance *instance, int64 epoch);
extern void instance_publish_as(Instance *instance, const char *publisher);

#endif							/* OUTBOX_INSTANCE_H */
