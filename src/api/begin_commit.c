/*
 * begin_commit.c
 *		outbox_begin() and outbox_commit(): the handler of an incoming message.
 *
 * Checks what it is given and delegates to session.c.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"

#include "src/api/arguments.h"
#include "src/api/caller.h"
#include "src/record/session.h"

static bool begin_message(FunctionCallInfo fcinfo, const char *msgid);

PG_FUNCTION_INFO_V1(outbox_begin_text);
PG_FUNCTION_INFO_V1(outbox_begin_uuid);
PG_FUNCTION_INFO_V1(outbox_commit);

/* outbox_begin(msgid text, endpoint text, concurrency text) */
Datum
outbox_begin_text(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(begin_message(fcinfo, argument_new_msgid(fcinfo, TEXTOID)));
}

/* outbox_begin(msgid uuid, endpoint text, concurrency text) */
Datum
outbox_begin_uuid(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(begin_message(fcinfo, argument_new_msgid(fcinfo, UUIDOID)));
}

/* outbox_commit() */
Datum
outbox_commit(PG_FUNCTION_ARGS)
{
	caller_check_can_store("outbox_commit()");
	PG_RETURN_INT32(session_commit());
}

/* Opens a message with the endpoint and the concurrency that the arguments name. */
static bool
begin_message(FunctionCallInfo fcinfo, const char *msgid)
{
	Endpoint	endpoint;

	caller_check_can_store("outbox_begin()");
	endpoint = argument_endpoint(fcinfo, 1);
	if (!PG_ARGISNULL(2))
		endpoint.concurrency = argument_concurrency(PG_GETARG_DATUM(2));
	return session_begin(&endpoint, msgid);
}
