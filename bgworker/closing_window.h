/*
 * closing_window.h
 *		Notes, when nothing was sent for a while, how far publishing has got.
 */
#ifndef OUTBOX_CLOSING_WINDOW_H
#define OUTBOX_CLOSING_WINDOW_H

#include "bgworker/window/position.h"

extern void closing_window_when_idle(Position *position);
extern long closing_window_ms_until_due(const Position *position);

#endif							/* OUTBOX_CLOSING_WINDOW_H */
