/*
 * message_id.h
 *		The id of an outgoing message that consumers see.
 */
#ifndef OUTBOX_MESSAGE_ID_H
#define OUTBOX_MESSAGE_ID_H

#include "fmgr.h"

#include "src/log/log.h"

extern void message_id_take(FunctionCallInfo fcinfo, Message *message);
extern void message_id_make(Message *message);

#endif							/* OUTBOX_MESSAGE_ID_H */
