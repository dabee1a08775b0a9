/*
 * window_pace.h
 *		How long the dispatcher pauses between two windows.
 */
#ifndef OUTBOX_WINDOW_PACE_H
#define OUTBOX_WINDOW_PACE_H

extern void window_pace_init(void);
extern void window_pace_note(int64 messages);
extern long window_pace_ms(void);

#endif							/* OUTBOX_WINDOW_PACE_H */
