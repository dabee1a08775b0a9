/*
 * forget.c
 *		outbox_forget(): has a processed message count as new again.
 *
 * Called by administrators, after a bug in a handler and in tests. Checks its
 * arguments and delegates to record.c. What the message has caused is none of
 * its business: messages that are enqueued are sent.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "src/record/endpoint.h"
#include "src/record/record.h"
#include "src/settings.h"

static Datum forget(FunctionCallInfo fcinfo, const char *msgid);

PG_FUNCTION_INFO_V1(outbox_forget_text);
PG_FUNCTION_INFO_V1(outbox_forget_uuid);

/* outbox_forget(msgid text, endpoint text) */
Datum
outbox_forget_text(PG_FUNCTION_ARGS)
{
	return forget(fcinfo, PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0)));
}

/* outbox_forget(msgid uuid, endpoint text) */
Datum
outbox_forget_uuid(PG_FUNCTION_ARGS)
{
	return forget(fcinfo, PG_ARGISNULL(0) ? NULL :
				  DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0))));
}

static Datum
forget(FunctionCallInfo fcinfo, const char *msgid)
{
	Endpoint	endpoint;
	RecordName	name;

	PreventCommandIfReadOnly("outbox_forget()");
	PreventCommandIfParallelMode("outbox_forget()");
	if (msgid == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("msgid must not be null")));
	endpoint = endpoint_get(PG_ARGISNULL(1) ? outbox_endpoint :
							text_to_cstring(PG_GETARG_TEXT_PP(1)));
	record_name_make(&name, &endpoint, msgid);
	PG_RETURN_BOOL(record_forget(&name));
}
