/*
 * open_message.h
 *		Which incoming message is open in this transaction.
 */
#ifndef OUTBOX_OPEN_MESSAGE_H
#define OUTBOX_OPEN_MESSAGE_H

#include "src/record/endpoint.h"
#include "src/record/record_look.h"
#include "src/record/record_name.h"

extern void open_message_init(void);
extern void open_message_check_first(void);
extern bool open_message_begin(const Endpoint *endpoint, const char *msgid);
extern const RecordName *open_message_add_outgoing(void);
extern const RecordName *open_message_record(void);
extern int	open_message_commit(void);

#endif							/* OUTBOX_OPEN_MESSAGE_H */
