/*
 * held.h
 *		Messages that a dead one holds back.
 */
#ifndef OUTBOX_HELD_H
#define OUTBOX_HELD_H

#include "src/log/log.h"

extern void held_load(void);
extern bool held_is_behind_dead(const Message *message);
extern void held_note(const Message *message);
extern int64 held_note_dead(const Message *message);
extern int64 held_count(void);
extern TimestampTz held_oldest(void);

#endif							/* OUTBOX_HELD_H */
