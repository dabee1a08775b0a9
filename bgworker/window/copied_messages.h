/*
 * copied_messages.h
 *		Which messages of a copied database are ours to send.
 */
#ifndef OUTBOX_COPIED_MESSAGES_H
#define OUTBOX_COPIED_MESSAGES_H

#include "bgworker/identity/instance.h"
#include "bgworker/window/position.h"

extern void copied_messages_skip_foreign(Position *position, const Instance *instance);

#endif							/* OUTBOX_COPIED_MESSAGES_H */
