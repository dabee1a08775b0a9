/*
 * shutdown.h
 *		How the dispatcher ends.
 */
#ifndef OUTBOX_SHUTDOWN_H
#define OUTBOX_SHUTDOWN_H

#include "bgworker/window/position.h"
#include "src/compat.h"
#include "src/shared.h"

extern void shutdown_leave_in_order(Position *position);
extern void shutdown_leave_amid_work(void);
pg_noreturn extern void shutdown_for_successor(Position *position);
pg_noreturn extern void shutdown_end(Farewell farewell, Position *position);

#endif							/* OUTBOX_SHUTDOWN_H */
