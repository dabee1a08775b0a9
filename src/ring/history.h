/*
 * history.h
 *		Records that were compacted: sorted keys, as many to a row as fill a page.
 */
#ifndef OUTBOX_HISTORY_H
#define OUTBOX_HISTORY_H

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/uuid.h"

/* Keys in a full row: with its header and first_key it fills a page. */
#define HISTORY_KEYS	((MaxHeapTupleSize - 64) / sizeof(pg_uuid_t))

extern bool history_contains(int segment, const pg_uuid_t *key);
extern Relation history_index(Relation table);
extern void history_append(Relation table, const pg_uuid_t *keys, int n);
extern const pg_uuid_t *history_row_keys(TupleTableSlot *row, int *n);
extern bool history_row_before(Relation table, Relation index, const pg_uuid_t *key, TupleTableSlot *row);

/* Compares two keys, as memcmp() does. */
static inline int
key_compare(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a->data, b->data, sizeof(a->data));
}

#endif							/* OUTBOX_HISTORY_H */
