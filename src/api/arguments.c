/*
 * arguments.c
 *		Checks the arguments that applications pass, and converts them.
 *
 * Called by the functions that SQL calls, and by restore.c for the rows of a dump.
 * It must refuse everything that the dispatcher could fail on later, when no caller
 * is left to be told.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/compat.h"
#include "src/limits.h"
#include "src/stream/entry.h"
#include "src/stream/headers.h"

#define RESERVED_PREFIX "outbox:"

static bytea *make_body_of_bytes(const char *body, size_t size, bool is_text);
static void check_body_size(size_t size);
static void check_convertible(const char *string, int length);

PG_FUNCTION_INFO_V1(outbox_check_dest);

/* outbox.check_dest(dest): for the functions that are written in SQL. */
Datum
outbox_check_dest(PG_FUNCTION_ARGS)
{
	(void) argument_dest(fcinfo, 0);
	PG_RETURN_VOID();
}

/* Returns the id of an incoming message, palloc'd: the first argument, which is text or uuid. */
char *
argument_msgid(FunctionCallInfo fcinfo, Oid type)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("msgid must not be null")));
	if (type == UUIDOID)
		return DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0)));
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

/* The same for a message that is to be opened: raises an error if the id cannot be that of one. */
char *
argument_new_msgid(FunctionCallInfo fcinfo, Oid type)
{
	return type == UUIDOID ? argument_msgid(fcinfo, type) : text_to_cstring(argument_name(fcinfo, 0, "msgid"));
}

/* Returns the endpoint that an argument names, or that outbox.endpoint names if it is NULL. */
Endpoint
argument_endpoint(FunctionCallInfo fcinfo, int arg)
{
	return endpoint_get(PG_ARGISNULL(arg) ? outbox_endpoint :
						text_to_cstring(PG_GETARG_TEXT_PP(arg)));
}

/* Reads the name of a concurrency. */
Concurrency
argument_concurrency(Datum value)
{
	char	   *name = TextDatumGetCString(value);
	Concurrency concurrency;

	if (!settings_concurrency_from_name(name, &concurrency))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid concurrency: \"%s\"", name),
				 errhint("Use \"optimistic\" or \"pessimistic\".")));
	return concurrency;
}

/* Reads an argument that names something. */
text *
argument_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	return argument_check_name(PG_GETARG_TEXT_PP(arg), what);
}

/* Returns the elements of an argument that is an array of text; NIL if it is empty or NULL. */
List *
argument_names(FunctionCallInfo fcinfo, int arg, const char *what)
{
	Datum	   *elements;
	bool	   *isnull;
	int			n;
	List	   *names = NIL;

	if (PG_ARGISNULL(arg))
		return NIL;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(arg), TEXTOID, -1, false, TYPALIGN_INT, &elements, &isnull, &n);
	for (int i = 0; i < n; i++)
	{
		if (isnull[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of %s must not be null", i + 1, what)));
		names = lappend(names, TextDatumGetCString(elements[i]));
	}
	return names;
}

/* Raises an error if a name is empty, too long, or cannot be converted to UTF-8. */
text *
argument_check_name(text *name, const char *what)
{
	if (VARSIZE_ANY_EXHDR(name) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what)));
	if (VARSIZE_ANY_EXHDR(name) > MAX_NAME_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg("%s is too long", what),
				 errdetail("It has %zu bytes; %d are allowed.",
						   (size_t) VARSIZE_ANY_EXHDR(name), MAX_NAME_BYTES)));
	check_convertible(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	return name;
}

/* Makes a message of the arguments that outbox_enqueue() and outbox_send() share; its id is taken by message_id_take(). */
void
argument_message(FunctionCallInfo fcinfo, Oid body_type, Message *message)
{
	memset(message, 0, sizeof(*message));
	message->dest = argument_dest(fcinfo, ARG_DEST);
	if (PG_ARGISNULL(ARG_BODY))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("body must not be null")));
	message->body = argument_body(body_type, PG_GETARG_DATUM(ARG_BODY));
	if (!PG_ARGISNULL(ARG_HEADERS))
		message->headers = headers_check(PG_GETARG_JSONB_P(ARG_HEADERS));
}

/* Reads the name of a destination. */
text *
argument_dest(FunctionCallInfo fcinfo, int arg)
{
	return argument_check_dest(argument_name(fcinfo, arg, "dest"));
}

/* Raises an error if a name cannot be that of a destination. */
text *
argument_check_dest(text *dest)
{
	(void) argument_check_name(dest, "dest");
	if (VARSIZE_ANY_EXHDR(dest) >= strlen(RESERVED_PREFIX) &&
		memcmp(VARDATA_ANY(dest), RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("dest must not begin with \"%s\"", RESERVED_PREFIX),
				 errdetail("These keys in Redis belong to the extension.")));
	return dest;
}

/* Returns the bytes to be sent of a body: json as it was written, jsonb as it is printed. */
bytea *
argument_body(Oid type, Datum value)
{
	struct varlena *body;

	if (type == JSONBOID)
	{
		char	   *printed = DatumGetCString(DirectFunctionCall1(jsonb_out, value));

		return make_body_of_bytes(printed, strlen(printed), true);
	}
	body = PG_DETOAST_DATUM_PACKED(value);
	return make_body_of_bytes(VARDATA_ANY(body), VARSIZE_ANY_EXHDR(body), type != BYTEAOID);
}

/* Returns the key whose messages stay in order; NULL if there is none. */
text *
argument_key(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : argument_check_name(PG_GETARG_TEXT_PP(arg), "key");
}

/* Returns the time when a message is due; 0 = at once. */
TimestampTz
argument_deliver_at(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(ARG_DELIVER_AT))
		return 0;
	return argument_check_deliver_at(PG_GETARG_TIMESTAMPTZ(ARG_DELIVER_AT));
}

/* Raises an error if a message would never be due. */
TimestampTz
argument_check_deliver_at(TimestampTz deliver_at)
{
	if (TIMESTAMP_IS_NOEND(deliver_at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("deliver_at must be finite")));
	return deliver_at;
}

/* Raises an error if a message that comes as a row, as from a dump, cannot be sent. */
void
argument_check_row(const Message *message)
{
	check_body_size(toast_raw_datum_size(PointerGetDatum(message->body)) - VARHDRSZ);
	if (message->headers)
		entry_check_headers(message->headers);
}

/* Returns the bytes to be sent: text as UTF-8, bytea as it is. */
static bytea *
make_body_of_bytes(const char *body, size_t size, bool is_text)
{
	char	   *converted = (char *) body;
	bytea	   *result;

	if (size <= MAX_BODY_BYTES && is_text)
	{
		converted = pg_server_to_any(body, size, PG_UTF8);
		if (converted != body)
			size = strlen(converted);
	}
	check_body_size(size);

	result = palloc(VARHDRSZ + size);
	SET_VARSIZE(result, VARHDRSZ + size);
	memcpy(VARDATA(result), converted, size);
	return result;
}

/* Raises 54000 if a body has more bytes than may be sent. */
static void
check_body_size(size_t size)
{
	if (size > MAX_BODY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("body is too large"),
				 errdetail("It has %zu bytes; %d are allowed.", size, MAX_BODY_BYTES)));
}

/*
 * Raises the conversion's error if a string cannot be converted to UTF-8, in
 * which it will be sent.
 */
static void
check_convertible(const char *string, int length)
{
	char	   *converted = pg_server_to_any(string, length, PG_UTF8);

	if (converted != string)
		pfree(converted);
}
