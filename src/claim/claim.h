/*
 * claim.h
 *		Finds out whether a message has been processed, and claims it.
 */
#ifndef OUTBOX_CLAIM_H
#define OUTBOX_CLAIM_H

#include "src/record/record_look.h"
#include "src/record/record_name.h"

extern RecordLook claim_look_up(const RecordName *name, RecordMemo *memo);
extern RecordLook claim_message(const RecordName *name, const RecordMemo *memo);
extern void claim_append(const pg_uuid_t *key, const char *endpoint, const char *msgid);
extern void claim_restore(const pg_uuid_t *key, const char *endpoint, const char *msgid);

#endif							/* OUTBOX_CLAIM_H */
