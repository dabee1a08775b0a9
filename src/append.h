/*
 * append.h
 *		Inserting a row without the executor.
 */
#ifndef OUTBOX_APPEND_H
#define OUTBOX_APPEND_H

#include "access/attnum.h"
#include "utils/relcache.h"

extern void append_row(Relation table, AttrNumber key, int ncolumns, const Datum *values, const bool *isnull);

#endif							/* OUTBOX_APPEND_H */
