/*
 * record_mapping.h
 *		Which custom record table holds an endpoint's records, and how.
 */
#ifndef OUTBOX_RECORD_MAPPING_H
#define OUTBOX_RECORD_MAPPING_H

#include "utils/jsonb.h"

typedef struct RecordMapping
{
	Oid			table;			/* InvalidOid = records are in our own ring */
	char	   *message_id;		/* names of its columns */
	char	   *dispatched;
	char	   *dispatched_at;
	char	   *problem;		/* why they could not be read, or NULL */
} RecordMapping;

extern void record_mapping_read(RecordMapping *mapping, Oid table, Jsonb *columns);
extern void record_mapping_copy(RecordMapping *copy, const RecordMapping *mapping);
extern void record_mapping_free_copy(RecordMapping *copy);
extern bool record_mapping_equal(const RecordMapping *a, const RecordMapping *b);

#endif							/* OUTBOX_RECORD_MAPPING_H */
