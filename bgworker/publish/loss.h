/*
 * loss.h
 *		Notes what Redis has lost and the log does not have any more.
 */
#ifndef OUTBOX_LOSS_H
#define OUTBOX_LOSS_H

#include "src/log/window.h"

extern TimestampTz loss_note_before(int64 number);
extern void loss_note_missing(const Window *before, const Window *next);
extern void loss_note_expired(const Window *window);

#endif							/* OUTBOX_LOSS_H */
