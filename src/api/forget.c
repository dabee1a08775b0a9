/*
 * forget.c
 *		outbox_forget(): makes a processed message count as new again.
 *
 * Called by administrators, after a bug in a handler and in tests. Checks its
 * arguments and calls record_forget.c. It does not affect messages that the processed
 * one has caused: they are sent.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/claim/record_forget.h"

static Datum forget_message(FunctionCallInfo fcinfo, const char *msgid);

PG_FUNCTION_INFO_V1(outbox_forget_text);
PG_FUNCTION_INFO_V1(outbox_forget_uuid);

/* outbox_forget(msgid text, endpoint text) */
Datum
outbox_forget_text(PG_FUNCTION_ARGS)
{
	return forget_message(fcinfo, argument_msgid(fcinfo, TEXTOID));
}

/* outbox_forget(msgid uuid, endpoint text) */
Datum
outbox_forget_uuid(PG_FUNCTION_ARGS)
{
	return forget_message(fcinfo, argument_msgid(fcinfo, UUIDOID));
}

/* Forgets a message of the endpoint that the second argument names. */
static Datum
forget_message(FunctionCallInfo fcinfo, const char *msgid)
{
	Endpoint	endpoint;
	RecordName	name;

	caller_check_can_write("outbox_forget()");
	endpoint = argument_endpoint(fcinfo, 1);
	record_name_make(&name, &endpoint, msgid);
	PG_RETURN_BOOL(record_forget(&name));
}
