/*
 * heir.h
 *		Records which copy has taken the place of a database that is gone.
 */
#ifndef OUTBOX_HEIR_H
#define OUTBOX_HEIR_H

#include "utils/uuid.h"

extern bool heir_claim(const pg_uuid_t *instance, Oid original);

#endif							/* OUTBOX_HEIR_H */
