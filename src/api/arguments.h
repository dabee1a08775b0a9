/*
 * arguments.h
 *		What applications pass, checked.
 */
#ifndef OUTBOX_ARGUMENTS_H
#define OUTBOX_ARGUMENTS_H

#include "fmgr.h"

#include "src/log/log.h"
#include "src/record/endpoint.h"

/* Arguments of outbox_enqueue() and outbox_send(), and of outbox_enqueue_many(), where some are plural. */
enum
{
	ARG_DEST,
	ARG_BODY,
	ARG_HEADERS,
	ARG_MESSAGE_ID,
	ARG_DELIVER_AT,
	ARG_KEY
};

/* The last argument of outbox_send(), which has no deliver_at. */
#define ARG_SEND_KEY	ARG_DELIVER_AT

extern char *argument_msgid(FunctionCallInfo fcinfo, Oid type);
extern char *argument_new_msgid(FunctionCallInfo fcinfo, Oid type);
extern Endpoint argument_endpoint(FunctionCallInfo fcinfo, int arg);
extern Concurrency argument_concurrency(Datum value);
extern text *argument_name(FunctionCallInfo fcinfo, int arg, const char *what);
extern List *argument_names(FunctionCallInfo fcinfo, int arg, const char *what);
extern text *argument_check_name(text *name, const char *what);

extern void argument_message(FunctionCallInfo fcinfo, Oid body_type, Message *message);
extern text *argument_dest(FunctionCallInfo fcinfo, int arg);
extern text *argument_check_dest(text *dest);
extern bytea *argument_body(Oid type, Datum value);
extern text *argument_key(FunctionCallInfo fcinfo, int arg);
extern TimestampTz argument_deliver_at(FunctionCallInfo fcinfo);
extern TimestampTz argument_check_deliver_at(TimestampTz deliver_at);
extern void argument_check_row(const Message *message);

#endif							/* OUTBOX_ARGUMENTS_H */
