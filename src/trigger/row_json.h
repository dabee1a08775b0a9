/*
 * row_json.h
 *		Columns of a row as JSON.
 */
#ifndef OUTBOX_ROW_JSON_H
#define OUTBOX_ROW_JSON_H

#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef struct RowJson RowJson;

extern RowJson *row_json_make(Relation table, List *names);
extern RowJson *row_json_make_of_primary_key(Relation table);
extern void row_json_write(RowJson *json, TupleTableSlot *row, StringInfo out);
extern text *row_json_to_text(RowJson *json, TupleTableSlot *row, int limit);
extern bool row_json_differs(const RowJson *json, TupleTableSlot *before, TupleTableSlot *after);

#endif							/* OUTBOX_ROW_JSON_H */
