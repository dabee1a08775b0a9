/*
 * append.h
 *		Inserting a row without the executor.
 */
#ifndef OUTBOX_APPEND_H
#define OUTBOX_APPEND_H

#include "access/genam.h"
#include "utils/relcache.h"

extern void append_row(Relation table, Oid index, AttrNumber key,
					   IndexUniqueCheck unique, Datum *values, bool *isnull);

#endif							/* OUTBOX_APPEND_H */
