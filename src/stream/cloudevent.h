/*
 * cloudevent.h
 *		The form of a message in a stream that has CloudEvents.
 */
#ifndef OUTBOX_CLOUDEVENT_H
#define OUTBOX_CLOUDEVENT_H

#include "src/log/log.h"
#include "src/stream/field.h"

extern void cloudevent_write(const Message *message, EntryParts parts, EntrySink sink, void *arg);

#endif							/* OUTBOX_CLOUDEVENT_H */
