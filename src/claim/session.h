/*
 * session.h
 *		Which incoming message is open in this transaction.
 */
#ifndef OUTBOX_SESSION_H
#define OUTBOX_SESSION_H

#include "src/record/endpoint.h"
#include "src/record/record_look.h"
#include "src/record/record_name.h"

extern void session_init(void);
extern void session_check_first(void);
extern bool session_begin(const Endpoint *endpoint, const char *msgid);
extern const RecordName *session_add_message(void);
extern const RecordName *session_open_record(void);
extern int	session_commit(void);

#endif							/* OUTBOX_SESSION_H */
