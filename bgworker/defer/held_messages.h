/*
 * held_messages.h
 *		Messages that a dead one holds back.
 */
#ifndef OUTBOX_HELD_MESSAGES_H
#define OUTBOX_HELD_MESSAGES_H

#include "src/log/log.h"

extern void held_messages_load(void);
extern bool held_messages_is_behind_dead(const Message *message);
extern void held_messages_note(const Message *message);
extern int64 held_messages_note_dead(const Message *message);
extern int64 held_messages_count(void);
extern TimestampTz held_messages_oldest(void);

#endif							/* OUTBOX_HELD_MESSAGES_H */
