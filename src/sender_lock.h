/*
 * sender_lock.h
 *		Whether calls of outbox_send() may rely on former settings.
 */
#ifndef OUTBOX_SENDER_LOCK_H
#define OUTBOX_SENDER_LOCK_H

#include "storage/lock.h"

typedef struct SenderLock
{
	LOCKTAG		tag;
	bool		is_held;
} SenderLock;

extern void sender_lock_take(SenderLock *held);
extern void sender_lock_release(const SenderLock *held);

extern void sender_lock_begin_epoch(void);
extern bool sender_lock_is_held_of_before(void);

#endif							/* OUTBOX_SENDER_LOCK_H */
