/*
 * suspects.h
 *		Messages that may break the link to Redis.
 */
#ifndef OUTBOX_SUSPECTS_H
#define OUTBOX_SUSPECTS_H

#include "bgworker/window/run.h"

extern bool suspects_include(WindowPlace message);
extern void suspects_note_strike(WindowPlace tried);
extern void suspects_note_progress(void);
extern bool suspects_have_strikes(void);
extern bool suspects_find_culprit(WindowPlace *culprit);
extern void suspects_clear(void);
extern void suspects_note_sent(int64 window);

#endif							/* OUTBOX_SUSPECTS_H */
