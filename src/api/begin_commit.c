/*
 * begin_commit.c
 *		outbox_begin() and outbox_commit(): the handler of an incoming message.
 *
 * Checks what it is given and delegates to open_message.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/claim/open_message.h"

static bool begin_message(FunctionCallInfo fcinfo, const char *msgid);
static Datum make_row(FunctionCallInfo fcinfo, bool value);

PG_FUNCTION_INFO_V1(outbox_begin_text);
PG_FUNCTION_INFO_V1(outbox_begin_uuid);
PG_FUNCTION_INFO_V1(outbox_begin_message_text);
PG_FUNCTION_INFO_V1(outbox_begin_message_uuid);
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

/* outbox_begin_message(msgid text, endpoint text, concurrency text, INOUT is_new boolean), a procedure */
Datum
outbox_begin_message_text(PG_FUNCTION_ARGS)
{
	return make_row(fcinfo, begin_message(fcinfo, argument_new_msgid(fcinfo, TEXTOID)));
}

/* outbox_begin_message(msgid uuid, endpoint text, concurrency text, INOUT is_new boolean), a procedure */
Datum
outbox_begin_message_uuid(PG_FUNCTION_ARGS)
{
	return make_row(fcinfo, begin_message(fcinfo, argument_new_msgid(fcinfo, UUIDOID)));
}

/* outbox_commit() */
Datum
outbox_commit(PG_FUNCTION_ARGS)
{
	caller_check_can_store("outbox_commit()");
	PG_RETURN_INT32(open_message_commit());
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
	return open_message_begin(&endpoint, msgid);
}

/* Returns the row of the INOUT argument of a procedure. */
static Datum
make_row(FunctionCallInfo fcinfo, bool value)
{
	TupleDesc	columns;
	Datum		values[] = {BoolGetDatum(value)};
	bool		isnull[] = {false};

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, isnull));
}
