/*
 * tombstones.h
 *		Rows of messages that were deferred and have been returned to the log, or discarded.
 */
#ifndef OUTBOX_TOMBSTONES_H
#define OUTBOX_TOMBSTONES_H

#include "src/log/deferred.h"
#include "src/log/log.h"

extern bool tombstones_hold(const Message *message, DeferredGap *gap);
extern void tombstones_forget_segment(int segment);

#endif							/* OUTBOX_TOMBSTONES_H */
