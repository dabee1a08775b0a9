/*
 * suspects.h
 *		Messages that may break the link to Redis.
 */
#ifndef OUTBOX_SUSPECTS_H
#define OUTBOX_SUSPECTS_H

extern bool suspects_include(int64 window, int64 id);
extern void suspects_note_strike(int64 window, int64 tried);
extern void suspects_note_progress(void);
extern bool suspects_have_strikes(void);
extern int64 suspects_culprit(int64 window);
extern void suspects_clear(void);
extern void suspects_note_window_sent(int64 window);

#endif							/* OUTBOX_SUSPECTS_H */
