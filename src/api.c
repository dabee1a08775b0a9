/*
 * api.c
 *		The functions that applications call: arguments in, SQLSTATEs out.
 *
 * Checks what it is given and delegates to session.c, log.c and send.c. It must refuse
 * everything that the dispatcher could choke on later, for then there is
 * nobody left to tell.
 */
#include "postgres.h"

#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "src/compat.h"
#include "src/endpoint.h"
#include "src/log.h"
#include "src/send.h"
#include "src/session.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/unique_id.h"

#define MAX_NAME_BYTES	1024	/* of msgid, message_id, dest */
#define MAX_BODY_BYTES	(64 * 1024 * 1024)
#define MAX_HEADERS		1000
#define MAX_HEADER_BYTES (1024 * 1024)	/* of all together */
#define RESERVED_PREFIX "outbox:"

/* Arguments of outbox_enqueue(). */
enum
{
	ARG_DEST,
	ARG_BODY,
	ARG_HEADERS,
	ARG_MESSAGE_ID,
	ARG_DELIVER_AT
};

static const char *const reserved_headers[] = {"id", "time", "body", "cause"};

/* What is done with a message of the types that a body may have. */
typedef Datum (*BodyUse) (FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text);

static bool begin(FunctionCallInfo fcinfo, const char *msgid);
static Datum with_text(FunctionCallInfo fcinfo, BodyUse use);
static Datum with_jsonb(FunctionCallInfo fcinfo, BodyUse use);
static Datum with_bytea(FunctionCallInfo fcinfo, BodyUse use);
static Datum enqueue(FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text);
static Datum send_message(FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text);
static void make_message(FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text, Message *message);
static void check_can_write(const char *function);
static void warn_unless_preloaded(void);
static text *check_name(FunctionCallInfo fcinfo, int arg, const char *what);
static void check_dest(const text *dest);
static Jsonb *check_headers(Jsonb *headers);
static void check_header(const JsonbValue *name, const JsonbValue *value);
static TimestampTz check_deliver_at(TimestampTz deliver_at);
static bytea *make_body(const char *body, size_t size, bool is_text);
static void check_convertible(const char *string, int length);

PG_FUNCTION_INFO_V1(outbox_begin_text);
PG_FUNCTION_INFO_V1(outbox_begin_uuid);
PG_FUNCTION_INFO_V1(outbox_enqueue_text);
PG_FUNCTION_INFO_V1(outbox_enqueue_json);
PG_FUNCTION_INFO_V1(outbox_enqueue_jsonb);
PG_FUNCTION_INFO_V1(outbox_enqueue_bytea);
PG_FUNCTION_INFO_V1(outbox_send_text);
PG_FUNCTION_INFO_V1(outbox_send_json);
PG_FUNCTION_INFO_V1(outbox_send_jsonb);
PG_FUNCTION_INFO_V1(outbox_send_bytea);
PG_FUNCTION_INFO_V1(outbox_commit);

/* outbox_begin(msgid text, endpoint text, concurrency text) */
Datum
outbox_begin_text(PG_FUNCTION_ARGS)
{
	text	   *msgid = check_name(fcinfo, 0, "msgid");

	PG_RETURN_BOOL(begin(fcinfo, text_to_cstring(msgid)));
}

/* outbox_begin(msgid uuid, endpoint text, concurrency text) */
Datum
outbox_begin_uuid(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		(void) check_name(fcinfo, 0, "msgid");
	PG_RETURN_BOOL(begin(fcinfo, DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0)))));
}

/* outbox_enqueue(dest, body, headers, message_id, deliver_at); json as it was written */
Datum
outbox_enqueue_text(PG_FUNCTION_ARGS)
{
	return with_text(fcinfo, enqueue);
}

Datum
outbox_enqueue_json(PG_FUNCTION_ARGS)
{
	return with_text(fcinfo, enqueue);
}

Datum
outbox_enqueue_jsonb(PG_FUNCTION_ARGS)
{
	return with_jsonb(fcinfo, enqueue);
}

Datum
outbox_enqueue_bytea(PG_FUNCTION_ARGS)
{
	return with_bytea(fcinfo, enqueue);
}

/* outbox_send(dest, body, headers, message_id) */
Datum
outbox_send_text(PG_FUNCTION_ARGS)
{
	return with_text(fcinfo, send_message);
}

Datum
outbox_send_json(PG_FUNCTION_ARGS)
{
	return with_text(fcinfo, send_message);
}

Datum
outbox_send_jsonb(PG_FUNCTION_ARGS)
{
	return with_jsonb(fcinfo, send_message);
}

Datum
outbox_send_bytea(PG_FUNCTION_ARGS)
{
	return with_bytea(fcinfo, send_message);
}

/* outbox_commit() */
Datum
outbox_commit(PG_FUNCTION_ARGS)
{
	check_can_write("outbox_commit()");
	PG_RETURN_INT32(session_commit());
}

static Datum
with_text(FunctionCallInfo fcinfo, BodyUse use)
{
	text	   *body = PG_ARGISNULL(ARG_BODY) ? NULL : PG_GETARG_TEXT_PP(ARG_BODY);

	return use(fcinfo, body ? VARDATA_ANY(body) : NULL, body ? VARSIZE_ANY_EXHDR(body) : 0, true);
}

static Datum
with_jsonb(FunctionCallInfo fcinfo, BodyUse use)
{
	char	   *body = NULL;

	if (!PG_ARGISNULL(ARG_BODY))
		body = DatumGetCString(DirectFunctionCall1(jsonb_out, PG_GETARG_DATUM(ARG_BODY)));
	return use(fcinfo, body, body ? strlen(body) : 0, true);
}

static Datum
with_bytea(FunctionCallInfo fcinfo, BodyUse use)
{
	bytea	   *body = PG_ARGISNULL(ARG_BODY) ? NULL : PG_GETARG_BYTEA_PP(ARG_BODY);

	return use(fcinfo, body ? VARDATA_ANY(body) : NULL, body ? VARSIZE_ANY_EXHDR(body) : 0, false);
}

static bool
begin(FunctionCallInfo fcinfo, const char *msgid)
{
	Endpoint	endpoint;

	check_can_write("outbox_begin()");
	check_convertible(msgid, strlen(msgid));
	endpoint = endpoint_get(PG_ARGISNULL(1) ? outbox_endpoint :
							text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (!PG_ARGISNULL(2))
	{
		char	   *concurrency = text_to_cstring(PG_GETARG_TEXT_PP(2));

		if (!settings_concurrency_from_name(concurrency, &endpoint.concurrency))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid concurrency: \"%s\"", concurrency),
					 errhint("Use \"optimistic\" or \"pessimistic\".")));
	}
	return session_begin(&endpoint, msgid);
}

static Datum
enqueue(FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text)
{
	Message		message;
	const RecordName *record;

	check_can_write("outbox_enqueue()");
	make_message(fcinfo, body, size, is_text, &message);
	if (!PG_ARGISNULL(ARG_DELIVER_AT) && PG_GETARG_TIMESTAMPTZ(ARG_DELIVER_AT) > message.at)
		message.deliver_at = check_deliver_at(PG_GETARG_TIMESTAMPTZ(ARG_DELIVER_AT));
	log_check_size();

	record = session_add_message();
	if (record)
	{
		message.has_key = true;
		message.key = record->key;
		message.cause = cstring_to_text(record->msgid);
	}
	message.id = log_next_id();
	log_append(&message);

	PG_RETURN_TEXT_P(message.message_id);
}

static Datum
send_message(FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text)
{
	Message		message;
	const RecordName *record;

	make_message(fcinfo, body, size, is_text, &message);
	record = session_open_record();
	if (record)
		message.cause = cstring_to_text(record->msgid);
	PG_RETURN_TEXT_P(cstring_to_text(send_now(&message)));
}

/* Makes a message of the arguments that outbox_enqueue() and outbox_send() share. */
static void
make_message(FunctionCallInfo fcinfo, const char *body, size_t size, bool is_text, Message *message)
{
	pg_uuid_t	id;

	memset(message, 0, sizeof(*message));
	message->dest = check_name(fcinfo, ARG_DEST, "dest");
	check_dest(message->dest);
	if (body == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("body must not be null")));
	message->body = make_body(body, size, is_text);
	if (!PG_ARGISNULL(ARG_HEADERS))
		message->headers = check_headers(PG_GETARG_JSONB_P(ARG_HEADERS));
	if (!PG_ARGISNULL(ARG_MESSAGE_ID))
		message->message_id = check_name(fcinfo, ARG_MESSAGE_ID, "message_id");
	else
	{
		unique_id_random(&id);
		message->message_id = unique_id_to_text(&id);
	}
	message->at = GetCurrentTimestamp();
}

static void
check_can_write(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	warn_unless_preloaded();
}

/* A server that stores messages and sends none should not go unnoticed. */
static void
warn_unless_preloaded(void)
{
	static bool warned = false;

	if (warned || shared_available())
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("outbox is not preloaded: messages are stored but not sent"),
			 errhint("Add this line to postgresql.conf and restart the server: shared_preload_libraries = 'outbox'")));
}

/* Reads an argument that names something: not NULL, not empty, not too long. */
static text *
check_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	text	   *name;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	name = PG_GETARG_TEXT_PP(arg);
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

static void
check_dest(const text *dest)
{
	if (VARSIZE_ANY_EXHDR(dest) >= strlen(RESERVED_PREFIX) &&
		memcmp(VARDATA_ANY(dest), RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("dest must not begin with \"%s\"", RESERVED_PREFIX),
				 errdetail("These keys in Redis belong to the extension.")));
}

/* Each header becomes a field of the entry, so the object must be flat. */
static Jsonb *
check_headers(Jsonb *headers)
{
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	value;

	if (!JB_ROOT_IS_OBJECT(headers))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("headers must be a JSON object")));
	if (JB_ROOT_COUNT(headers) > MAX_HEADERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("too many headers"),
				 errdetail("There are %u; %d are allowed.", JB_ROOT_COUNT(headers), MAX_HEADERS)));

	if (VARSIZE_ANY_EXHDR(headers) > MAX_HEADER_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("headers are too large"),
				 errdetail("They have %zu bytes; %d are allowed.",
						   (size_t) VARSIZE_ANY_EXHDR(headers), MAX_HEADER_BYTES)));

	iterator = JsonbIteratorInit(&headers->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		check_header(&name, &value);
	}
	return headers;
}

static void
check_header(const JsonbValue *name, const JsonbValue *value)
{
	char	   *key = pnstrdup(name->val.string.val, name->val.string.len);

	for (int i = 0; i < lengthof(reserved_headers); i++)
	{
		if (strcmp(key, reserved_headers[i]) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("header \"%s\" is reserved", key),
					 errdetail("Every message has a field of this name.")));
	}
	if (value->type != jbvString && value->type != jbvNumeric && value->type != jbvBool)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"%s\" must be a string, a number or a boolean", key)));
	check_convertible(key, name->val.string.len);
	if (value->type == jbvString)
		check_convertible(value->val.string.val, value->val.string.len);
	pfree(key);
}

static TimestampTz
check_deliver_at(TimestampTz deliver_at)
{
	if (TIMESTAMP_NOT_FINITE(deliver_at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("deliver_at must be finite")));
	return deliver_at;
}

/* The bytes to be sent: text as UTF-8, bytea as it is. */
static bytea *
make_body(const char *body, size_t size, bool is_text)
{
	char	   *converted = (char *) body;
	bytea	   *result;

	if (size <= MAX_BODY_BYTES && is_text)
	{
		converted = pg_server_to_any(body, size, PG_UTF8);
		if (converted != body)
			size = strlen(converted);
	}
	if (size > MAX_BODY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("body is too large"),
				 errdetail("It has %zu bytes; %d are allowed.", size, MAX_BODY_BYTES)));

	result = palloc(VARHDRSZ + size);
	SET_VARSIZE(result, VARHDRSZ + size);
	memcpy(VARDATA(result), converted, size);
	return result;
}

/*
 * Raises the conversion's error if a string cannot be said in UTF-8, which it
 * must be when it leaves.
 */
static void
check_convertible(const char *string, int length)
{
	char	   *converted = pg_server_to_any(string, length, PG_UTF8);

	if (converted != string)
		pfree(converted);
}
