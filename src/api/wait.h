/*
 * wait.h
 *		Sleeping until the dispatcher has made progress.
 */
#ifndef OUTBOX_WAIT_H
#define OUTBOX_WAIT_H

#include "datatype/timestamp.h"

#include "src/shared.h"

extern bool wait_for_progress(DatabaseShared *shared, TimestampTz deadline);

#endif							/* OUTBOX_WAIT_H */
