/*
 * unique_id.h
 *		Random ids and hashed keys.
 */
#ifndef OUTBOX_UNIQUE_ID_H
#define OUTBOX_UNIQUE_ID_H

#include "utils/uuid.h"

extern void unique_id_random(pg_uuid_t *id);
extern text *unique_id_to_text(const pg_uuid_t *id);
extern void unique_id_hash(const char *first, size_t first_length,
						   const char *second, size_t second_length, pg_uuid_t *key);

#endif							/* OUTBOX_UNIQUE_ID_H */
