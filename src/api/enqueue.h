/*
 * enqueue.h
 *		Writing a message of the caller's transaction.
 */
#ifndef OUTBOX_ENQUEUE_H
#define OUTBOX_ENQUEUE_H

#include "src/log/log.h"

extern void enqueue_message(Message *message);

#endif							/* OUTBOX_ENQUEUE_H */
