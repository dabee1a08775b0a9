/*
 * dispatcher_setup.h
 *		How a dispatcher becomes that of its database, and what it reads from the tables then.
 */
#ifndef OUTBOX_DISPATCHER_SETUP_H
#define OUTBOX_DISPATCHER_SETUP_H

#include "bgworker/window/position.h"
#include "src/shared.h"

extern DatabaseShared *dispatcher_setup_connect(Oid database);
extern void dispatcher_setup_load(Position *position);

#endif							/* OUTBOX_DISPATCHER_SETUP_H */
