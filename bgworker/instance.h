/*
 * instance.h
 *		Who this outbox is.
 */
#ifndef OUTBOX_INSTANCE_H
#define OUTBOX_INSTANCE_H

#include "utils/uuid.h"

extern bool instance_load(pg_uuid_t *id, bool *is_copy);

#endif							/* OUTBOX_INSTANCE_H */
