/*
 * record_table_cache.h
 *		Custom record tables that were checked, and not changed since.
 */
#ifndef OUTBOX_RECORD_TABLE_CACHE_H
#define OUTBOX_RECORD_TABLE_CACHE_H

#include "executor/spi.h"
#include "storage/lockdefs.h"

#include "src/record/record_table_check.h"

typedef struct KnownTable
{
	Oid			oid;			/* the key in the hash table */
	bool		valid;
	MemoryContext context;		/* of what follows; NULL = nothing */
	RecordMapping mapping;
	RecordShape shape;
	SPIPlanPtr	insert;			/* or NULL */
} KnownTable;

extern void record_table_cache_init(void);
extern KnownTable *record_table_cache_open(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, Relation *table);

#endif							/* OUTBOX_RECORD_TABLE_CACHE_H */
