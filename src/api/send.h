/*
 * send.h
 *		Immediate dispatch.
 */
#ifndef OUTBOX_SEND_H
#define OUTBOX_SEND_H

#include "src/log/log.h"

extern char *send_now(Message *message);

#endif							/* OUTBOX_SEND_H */
