/*
 * cleanup.h
 *		Rotation of the rings, and expiry.
 */
#ifndef OUTBOX_CLEANUP_H
#define OUTBOX_CLEANUP_H

#include "bgworker/position.h"

extern bool cleanup_run(Position *position, bool may_empty);

#endif							/* OUTBOX_CLEANUP_H */
