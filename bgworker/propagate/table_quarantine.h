/*
 * table_quarantine.h
 *		Custom record tables on which a statement did not end.
 */
#ifndef OUTBOX_TABLE_QUARANTINE_H
#define OUTBOX_TABLE_QUARANTINE_H

#include "src/shared.h"

extern void table_quarantine_init(void);
extern void table_quarantine_add(Bookkeeping *books, Oid table);
extern void table_quarantine_check(Oid table);
extern Oid	table_quarantine_ended_at(void);

#endif							/* OUTBOX_TABLE_QUARANTINE_H */
