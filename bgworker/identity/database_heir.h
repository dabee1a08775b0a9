/*
 * database_heir.h
 *		Records which copy has taken the place of a database that is gone.
 */
#ifndef OUTBOX_DATABASE_HEIR_H
#define OUTBOX_DATABASE_HEIR_H

#include "utils/uuid.h"

extern bool database_heir_claim(const pg_uuid_t *instance, Oid original);

#endif							/* OUTBOX_DATABASE_HEIR_H */
