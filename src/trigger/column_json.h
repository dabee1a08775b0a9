/*
 * column_json.h
 *		Columns of a row as JSON.
 */
#ifndef OUTBOX_COLUMN_JSON_H
#define OUTBOX_COLUMN_JSON_H

#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef struct ColumnJson ColumnJson;

extern ColumnJson *column_json_make(Relation table, List *names);
extern ColumnJson *column_json_make_of_primary_key(Relation table);
extern void column_json_write(ColumnJson *json, TupleTableSlot *row, StringInfo out);
extern text *column_json_to_text(ColumnJson *json, TupleTableSlot *row, int limit);
extern bool column_json_differs(const ColumnJson *json, TupleTableSlot *before, TupleTableSlot *after);

#endif							/* OUTBOX_COLUMN_JSON_H */
