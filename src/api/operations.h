/*
 * operations.h
 *		Messages that are stored as an array of operations.
 */
#ifndef OUTBOX_OPERATIONS_H
#define OUTBOX_OPERATIONS_H

#include "utils/jsonb.h"

#include "src/log/log.h"

extern void operation_read(Jsonb *operations, int position, Message *message);

#endif							/* OUTBOX_OPERATIONS_H */
