/*
 * record_table_check.h
 *		Checks whether a custom record table can hold records.
 */
#ifndef OUTBOX_RECORD_TABLE_CHECK_H
#define OUTBOX_RECORD_TABLE_CHECK_H

#include "access/attnum.h"
#include "utils/relcache.h"

#include "src/record/record_mapping.h"

/* What is known of a table that can hold records. */
typedef struct RecordShape
{
	Oid			owner;
	AttrNumber	message_id;
	AttrNumber	dispatched;
	AttrNumber	dispatched_at;
	Oid			id_type;		/* TEXTOID or UUIDOID, the type that ids are
								 * compared as */
	Oid			index;			/* unique, on message_id */
	bool		zoned;			/* dispatched_at has a time zone; else it is
								 * UTC */
} RecordShape;

extern void record_table_check(Relation table, const RecordMapping *mapping, RecordShape *shape);

#endif							/* OUTBOX_RECORD_TABLE_CHECK_H */
