/*
 * backlog.h
 *		Which windows are sent next.
 */
#ifndef OUTBOX_BACKLOG_H
#define OUTBOX_BACKLOG_H

#include "bgworker/window/position.h"

extern Run *backlog_next_run(Position *position);
extern bool backlog_may_extend_run(const Position *position);
extern bool backlog_extend_run(Position *position);

#endif							/* OUTBOX_BACKLOG_H */
