/*
 * append.h
 *		Inserting and deleting a row without the executor.
 */
#ifndef OUTBOX_APPEND_H
#define OUTBOX_APPEND_H

#include "access/attnum.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

extern void append_row(Relation table, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull);
extern bool delete_row(Relation table, ItemPointer tid, bool wait);

#endif							/* OUTBOX_APPEND_H */
