/*
 * row_write.h
 *		Inserting and deleting a row without the executor.
 */
#ifndef OUTBOX_ROW_WRITE_H
#define OUTBOX_ROW_WRITE_H

#include "access/attnum.h"
#include "executor/tuptable.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

extern void row_append(Relation table, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull);
extern void row_append_with(Relation table, Relation index, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull);
extern TransactionId row_inserter(TupleTableSlot *row);
extern bool row_delete(Relation table, ItemPointer tid, bool wait);

#endif							/* OUTBOX_ROW_WRITE_H */
