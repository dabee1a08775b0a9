/*
 * extension_drop.h
 *		Which statements drop the extension.
 */
#ifndef OUTBOX_EXTENSION_DROP_H
#define OUTBOX_EXTENSION_DROP_H

#include "nodes/nodes.h"

extern bool extension_drop_follows(Node *statement);

#endif							/* OUTBOX_EXTENSION_DROP_H */
