/*
 * held_by_dead.h
 *		Messages that a dead one holds back.
 */
#ifndef OUTBOX_HELD_BY_DEAD_H
#define OUTBOX_HELD_BY_DEAD_H

#include "src/log/log.h"

extern void held_by_dead_load(void);
extern bool held_by_dead_holds(const Message *message);
extern void held_by_dead_note(const Message *message);
extern int64 held_by_dead_note_dead(const Message *message, int64 id);
extern void held_by_dead_each_unsettled(void (*visit) (const char *dest));
extern long held_by_dead_ms_until_settling(void);
extern bool held_by_dead_awaits_settling(void);
extern int64 held_by_dead_count(void);
extern int64 held_by_dead_locked(void);
extern TimestampTz held_by_dead_oldest(void);

#endif							/* OUTBOX_HELD_BY_DEAD_H */
