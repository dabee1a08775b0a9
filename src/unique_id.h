/*
 * unique_id.h
 *		Random ids.
 */
#ifndef OUTBOX_UNIQUE_ID_H
#define OUTBOX_UNIQUE_ID_H

#include "utils/uuid.h"

extern void unique_id_random(pg_uuid_t *id);
extern text *unique_id_to_text(const pg_uuid_t *id);
extern bool unique_id_from_text(const text *string, pg_uuid_t *id);

#endif							/* OUTBOX_UNIQUE_ID_H */
