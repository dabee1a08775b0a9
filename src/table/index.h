/*
 * index.h
 *		The index of one of our tables on a column.
 */
#ifndef OUTBOX_INDEX_H
#define OUTBOX_INDEX_H

#include "access/attnum.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

extern Relation index_open_on(Relation table, AttrNumber column, LOCKMODE mode);
extern Relation index_open_to_write(Relation table, AttrNumber column);
extern bool index_is_alone(Relation table);

#endif							/* OUTBOX_INDEX_H */
