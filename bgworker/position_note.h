/*
 * position_note.h
 *		Notes, when nothing was sent for a while, how far publishing has got.
 */
#ifndef OUTBOX_POSITION_NOTE_H
#define OUTBOX_POSITION_NOTE_H

#include "bgworker/window/position.h"

extern void position_note_when_idle(Position *position);
extern long position_note_ms_until_due(const Position *position);

#endif							/* OUTBOX_POSITION_NOTE_H */
