/*
 * cloudevent.h
 *		The form of a message in a stream that has CloudEvents.
 */
#ifndef OUTBOX_CLOUDEVENT_H
#define OUTBOX_CLOUDEVENT_H

#include "src/log/field.h"
#include "src/log/log.h"

extern void cloudevent_write(const Message *message, EntryParts parts, EntrySink sink, void *arg);

#endif							/* OUTBOX_CLOUDEVENT_H */
