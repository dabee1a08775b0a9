/*
 * record_forget.h
 *		Making processed messages count as new again.
 */
#ifndef OUTBOX_RECORD_FORGET_H
#define OUTBOX_RECORD_FORGET_H

#include "src/record/record_look.h"
#include "src/record/record_name.h"

extern bool record_forget(const RecordName *name);
extern bool record_forget_in_ring(const RecordName *name, RecordLook *found);
extern void record_forget_restored(const pg_uuid_t *key);

#endif							/* OUTBOX_RECORD_FORGET_H */
