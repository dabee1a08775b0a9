/*
 * record_key.h
 *		The key of a record, and the momentary lock on it.
 */
#ifndef OUTBOX_RECORD_KEY_H
#define OUTBOX_RECORD_KEY_H

#include "storage/lock.h"
#include "utils/uuid.h"

extern void record_key_make(const char *endpoint, const char *msgid, pg_uuid_t *key);
extern void record_key_lock(const pg_uuid_t *key, LOCKTAG *tag);
extern void record_key_unlock(const LOCKTAG *tag);

#endif							/* OUTBOX_RECORD_KEY_H */
