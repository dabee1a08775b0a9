/*
 * inheritance.h
 *		Which messages of a copied database are ours to send.
 */
#ifndef OUTBOX_INHERITANCE_H
#define OUTBOX_INHERITANCE_H

#include "bgworker/instance.h"
#include "bgworker/publish/position.h"

extern void inheritance_skip_foreign(Position *position, const Instance *instance);

#endif							/* OUTBOX_INHERITANCE_H */
