/*
 * loss_note.h
 *		Notes what Redis has lost and is no longer in the log.
 */
#ifndef OUTBOX_LOSS_NOTE_H
#define OUTBOX_LOSS_NOTE_H

#include "src/log/window_row.h"

extern TimestampTz loss_note_before(int64 number);
extern void loss_note_missing(const Window *before, const Window *next, bool is_news);
extern void loss_note_expired(const Window *window, bool is_news);

#endif							/* OUTBOX_LOSS_NOTE_H */
