/*
 * window_opening.h
 *		Opens windows.
 */
#ifndef OUTBOX_WINDOW_OPENING_H
#define OUTBOX_WINDOW_OPENING_H

#include "bgworker/window/position.h"

extern bool window_opening_next(Position *position);
extern void window_opening_empty(Position *position, const SnapshotValue *snapshot);
extern bool window_opening_note(Position *position);
extern bool window_opening_closing(Position *position);
extern void window_opening_closing_at_once(Position *position);

#endif							/* OUTBOX_WINDOW_OPENING_H */
