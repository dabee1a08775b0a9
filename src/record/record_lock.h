/*
 * record_lock.h
 *		The momentary lock on the key of a record.
 */
#ifndef OUTBOX_RECORD_LOCK_H
#define OUTBOX_RECORD_LOCK_H

#include "storage/lock.h"
#include "utils/uuid.h"

extern void record_lock_take(const pg_uuid_t *key, LOCKTAG *tag);
extern void record_lock_release(const LOCKTAG *tag);

#endif							/* OUTBOX_RECORD_LOCK_H */
