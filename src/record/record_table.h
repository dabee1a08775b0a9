/*
 * record_table.h
 *		Records in a custom record table.
 */
#ifndef OUTBOX_RECORD_TABLE_H
#define OUTBOX_RECORD_TABLE_H

#include "storage/lockdefs.h"

#include "src/record/record_look.h"
#include "src/record/record_name.h"
#include "src/record/record_table_check.h"

extern char *record_table_canonical(const char *endpoint, const RecordMapping *mapping, const char *msgid);
extern char *record_table_spell(const RecordShape *shape, const char *msgid);
extern RecordLook record_table_look(const RecordName *name);
extern bool record_table_forget(const RecordName *name, RecordLook *found);

extern Relation record_table_open(const char *endpoint, const RecordMapping *mapping, LOCKMODE mode, RecordShape *shape);
extern const char *record_table_name(Oid table);

#endif							/* OUTBOX_RECORD_TABLE_H */
