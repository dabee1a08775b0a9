/*
 * nservicebus.h
 *		Messages that are stored as an array of operations.
 */
#ifndef OUTBOX_NSERVICEBUS_H
#define OUTBOX_NSERVICEBUS_H

#include "utils/jsonb.h"

#include "src/log/log.h"

extern void nservicebus_read_operation(Jsonb *operations, int position, Message *message);

#endif							/* OUTBOX_NSERVICEBUS_H */
