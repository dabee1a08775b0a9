/*
 * own_table.h
 *		Tables of ours, opened only if they have the columns that our code reads.
 */
#ifndef OUTBOX_OWN_TABLE_H
#define OUTBOX_OWN_TABLE_H

#include "storage/lockdefs.h"
#include "utils/relcache.h"

typedef enum OwnTable
{
	OWN_INSTANCE,
	OWN_LOSS,
	OWN_ERA,
	OWN_MAPPING,
	OWN_LANE,
	OWN_RING,
	OWN_COMPACTED,
	OWN_FORGOTTEN,
	OWN_ENDPOINT,
	OWN_DEFERRED,
	OWN_DESTINATION,
	OWN_LOG,
	OWN_WINDOW,
	OWN_RECORD,
	OWN_HISTORY,
	OWN_LOG_ID_SEQ
} OwnTable;

extern Relation own_table_open(Oid table, OwnTable kind, LOCKMODE mode);
extern void own_table_check(Relation table, OwnTable kind);
extern void own_table_require(Oid table, OwnTable kind);

#endif							/* OUTBOX_OWN_TABLE_H */
