/*
 * own_table.h
 *		Tables of ours, opened only if they have the columns that our code reads; and rows of statements on them.
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

/* Statements that return rows of which pointers are read. */
typedef enum OwnRows
{
	ROWS_INSTANCE,				/* bgworker/identity/instance.c */
	ROWS_ERA,					/* bgworker/lane/era.c */
	ROWS_MAPPING,				/* bgworker/lane/stream_mapping.c */
	ROWS_DESTINATION,			/* bgworker/defer/destination_settings.c */
	ROWS_WAITING,				/* bgworker/defer/deferral.c */
	ROWS_RETURNED,				/* bgworker/defer/due_messages.c */
	ROWS_DEAD,					/* bgworker/defer/held_by_dead.c */
	ROWS_ENDPOINT				/* src/api/endpoint_row.c */
} OwnRows;

extern Relation own_table_open(Oid table, OwnTable kind, LOCKMODE mode);
extern void own_table_check(Relation table, OwnTable kind);
extern void own_table_require(Oid table, OwnTable kind);
extern void own_rows_require(OwnRows kind);

#endif							/* OUTBOX_OWN_TABLE_H */
