/*
 * durable.h
 *		Waits until the record of a duplicate is safe.
 */
#ifndef OUTBOX_DURABLE_H
#define OUTBOX_DURABLE_H

#include "src/record.h"

extern void durable_wait(const RecordLook *look);

#endif							/* OUTBOX_DURABLE_H */
