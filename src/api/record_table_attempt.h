/*
 * record_table_attempt.h
 *		Uses a custom record table for a view; failure is no error.
 */
#ifndef OUTBOX_RECORD_TABLE_ATTEMPT_H
#define OUTBOX_RECORD_TABLE_ATTEMPT_H

#include "src/record/endpoint.h"

/* Does something with the custom record table of an endpoint, and may fail. */
typedef void (*RecordTableUse) (const Endpoint *endpoint, void *arg);

extern void record_table_attempt(RecordTableUse use, const Endpoint *endpoint, void *arg);

#endif							/* OUTBOX_RECORD_TABLE_ATTEMPT_H */
