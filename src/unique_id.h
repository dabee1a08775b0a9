/*
 * unique_id.h
 *		Random ids.
 */
#ifndef OUTBOX_UNIQUE_ID_H
#define OUTBOX_UNIQUE_ID_H

#include "utils/uuid.h"

/* The usual form of a UUID, with the zero at its end. */
#define UNIQUE_ID_BYTES		37

/* A random name, with the zero at its end. */
#define RANDOM_NAME_BYTES	9

extern void unique_id_name(char *name);
extern void unique_id_random(pg_uuid_t *id);
extern void unique_id_write(const pg_uuid_t *id, char *string);
extern text *unique_id_to_text(const pg_uuid_t *id);
extern bool unique_id_from_text(const text *string, pg_uuid_t *id);

#endif							/* OUTBOX_UNIQUE_ID_H */
