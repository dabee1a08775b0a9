/*
 * record_table_look.h
 *		Looks a record up in a custom record table.
 */
#ifndef OUTBOX_RECORD_TABLE_LOOK_H
#define OUTBOX_RECORD_TABLE_LOOK_H

#include "utils/relcache.h"

#include "src/record/record_look.h"
#include "src/record/record_table_check.h"

extern RecordLook record_table_look_in(Relation table, const RecordShape *shape, const char *msgid);
extern bool record_table_look_is_at_rest(const RecordLook *look);
extern Datum record_table_look_id(const RecordShape *shape, const char *msgid);

#endif							/* OUTBOX_RECORD_TABLE_LOOK_H */
