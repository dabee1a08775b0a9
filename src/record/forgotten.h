/*
 * forgotten.h
 *		Tombstones of ids that an administrator has made the outbox forget.
 */
#ifndef OUTBOX_FORGOTTEN_H
#define OUTBOX_FORGOTTEN_H

#include "utils/uuid.h"

/* What the tombstones of a key say. */
typedef enum Forgotten
{
	FORGOTTEN_NOT,				/* there is none */
	FORGOTTEN_PERHAPS,			/* a transaction in progress has written one */
	FORGOTTEN_YES,				/* written by this transaction, or committed */
	FORGOTTEN_NO_LONGER			/* a transaction in progress has deleted it,
								 * because it claims the id again */
} Forgotten;

extern Forgotten forgotten_look(const pg_uuid_t *key, TransactionId *in_progress);
extern bool forgotten_holds(const pg_uuid_t *key);
extern void forgotten_add(const pg_uuid_t *key);
extern void forgotten_clear(const pg_uuid_t *key);
extern void forgotten_expire(int64 age, bool (*is_kept) (const pg_uuid_t *key));

#endif							/* OUTBOX_FORGOTTEN_H */
