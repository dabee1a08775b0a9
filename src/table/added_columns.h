/*
 * added_columns.h
 *		Values of columns that an administrator has added to a table of ours.
 */
#ifndef OUTBOX_ADDED_COLUMNS_H
#define OUTBOX_ADDED_COLUMNS_H

#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "utils/relcache.h"

/* The defaults of the columns behind ours that must not be NULL; NULL = any other one, or it has none. */
typedef struct AddedColumns
{
	int			nours;
	Oid			owner;			/* of the table */
	EState	   *estate;
	ExprState **defaults;
} AddedColumns;

extern void added_columns_prepare(AddedColumns *added, Relation table, int nours, EState *estate);
extern void added_columns_fill(const AddedColumns *added, TupleTableSlot *row);

#endif							/* OUTBOX_ADDED_COLUMNS_H */
