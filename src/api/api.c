/*
 * api.c
 *		The functions that applications call: arguments in, SQLSTATEs out.
 *
 * Checks what it is given and delegates to session.c, log.c and send.c. It must refuse
 * everything that the dispatcher could choke on later, for then there is
 * nobody left to tell.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/api/send.h"
#include "src/compat.h"
#include "src/limits.h"
#include "src/log/entry.h"
#include "src/log/log.h"
#include "src/record/endpoint.h"
#include "src/record/owner.h"
#include "src/record/record_table.h"
#include "src/record/session.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/unique_id.h"

#define RESERVED_PREFIX "outbox:"

/* Arguments of outbox_enqueue(), and of outbox_enqueue_many(), where some are plural. */
enum
{
	ARG_DEST,
	ARG_BODY,
	ARG_HEADERS,
	ARG_MESSAGE_ID,
	ARG_DELIVER_AT
};

static const char *const reserved_headers[] = {"id", "time", "body", "cause"};

/* The messages that outbox_enqueue_many() has been given. */
typedef struct Bulk
{
	text	   *dest;
	ArrayType  *bodies;
	Oid			body_type;
	int			n;
	Jsonb	   *headers;		/* of all, or NULL */
	Jsonb	   *headers_of_each;	/* an array, or NULL */
	ArrayType  *message_ids;	/* or NULL */
	TimestampTz deliver_at;		/* 0 = at once */
} Bulk;

static bool begin(FunctionCallInfo fcinfo, const char *msgid);
static Datum enqueue(FunctionCallInfo fcinfo, Oid body_type);
static Datum send_message(FunctionCallInfo fcinfo, Oid body_type);
static void make_message(FunctionCallInfo fcinfo, Oid body_type, Message *message);
static void append_message(Message *message);
static void read_bulk(FunctionCallInfo fcinfo, Bulk *bulk);
static ArrayType *read_list(FunctionCallInfo fcinfo, int arg, const char *what, int *n);
static Oid	read_body_type(ArrayType *bodies);
static void read_headers_of_each(Bulk *bulk, Jsonb *headers);
static void append_bulk(const Bulk *bulk);
static void name_position(void *arg);
static Datum next_element(ArrayIterator elements, const char *what, int position);
static Jsonb *headers_at(Jsonb *list, int position);
static void check_can_write(const char *function);
static void warn_unless_preloaded(void);
static text *read_name(FunctionCallInfo fcinfo, int arg, const char *what);
static text *read_dest(FunctionCallInfo fcinfo);
static text *read_message_id(FunctionCallInfo fcinfo);
static TimestampTz read_deliver_at(FunctionCallInfo fcinfo);
static text *random_message_id(void);
static text *check_name(text *name, const char *what);
static void check_dest(const text *dest);
static Jsonb *check_headers(Jsonb *headers);
static void check_header(const JsonbValue *name, const JsonbValue *value);
static bytea *make_body(Oid type, Datum value);
static bytea *make_body_of_bytes(const char *body, size_t size, bool is_text);
static void check_convertible(const char *string, int length);

PG_FUNCTION_INFO_V1(outbox_begin_text);
PG_FUNCTION_INFO_V1(outbox_begin_uuid);
PG_FUNCTION_INFO_V1(outbox_enqueue_text);
PG_FUNCTION_INFO_V1(outbox_enqueue_json);
PG_FUNCTION_INFO_V1(outbox_enqueue_jsonb);
PG_FUNCTION_INFO_V1(outbox_enqueue_bytea);
PG_FUNCTION_INFO_V1(outbox_enqueue_many);
PG_FUNCTION_INFO_V1(outbox_send_text);
PG_FUNCTION_INFO_V1(outbox_send_json);
PG_FUNCTION_INFO_V1(outbox_send_jsonb);
PG_FUNCTION_INFO_V1(outbox_send_bytea);
PG_FUNCTION_INFO_V1(outbox_commit);

/* outbox_begin(msgid text, endpoint text, concurrency text) */
Datum
outbox_begin_text(PG_FUNCTION_ARGS)
{
	text	   *msgid = read_name(fcinfo, 0, "msgid");

	PG_RETURN_BOOL(begin(fcinfo, text_to_cstring(msgid)));
}

/* outbox_begin(msgid uuid, endpoint text, concurrency text) */
Datum
outbox_begin_uuid(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		(void) read_name(fcinfo, 0, "msgid");
	PG_RETURN_BOOL(begin(fcinfo, DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0)))));
}

/* outbox_enqueue(dest, body, headers, message_id, deliver_at); json as it was written */
Datum
outbox_enqueue_text(PG_FUNCTION_ARGS)
{
	return enqueue(fcinfo, TEXTOID);
}

Datum
outbox_enqueue_json(PG_FUNCTION_ARGS)
{
	return enqueue(fcinfo, JSONOID);
}

Datum
outbox_enqueue_jsonb(PG_FUNCTION_ARGS)
{
	return enqueue(fcinfo, JSONBOID);
}

Datum
outbox_enqueue_bytea(PG_FUNCTION_ARGS)
{
	return enqueue(fcinfo, BYTEAOID);
}

/*
 * outbox_enqueue_many(dest, bodies, headers, message_ids, deliver_at): all or
 * none in one call, for a query that enqueues row by row does so only with the
 * rows that its caller fetches.
 */
Datum
outbox_enqueue_many(PG_FUNCTION_ARGS)
{
	Bulk		bulk;

	check_can_write("outbox_enqueue_many()");
	read_bulk(fcinfo, &bulk);
	append_bulk(&bulk);
	PG_RETURN_INT32(bulk.n);
}

/* outbox_send(dest, body, headers, message_id) */
Datum
outbox_send_text(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, TEXTOID);
}

Datum
outbox_send_json(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, JSONOID);
}

Datum
outbox_send_jsonb(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, JSONBOID);
}

Datum
outbox_send_bytea(PG_FUNCTION_ARGS)
{
	return send_message(fcinfo, BYTEAOID);
}

/* outbox_commit() */
Datum
outbox_commit(PG_FUNCTION_ARGS)
{
	check_can_write("outbox_commit()");
	PG_RETURN_INT32(session_commit());
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
enqueue(FunctionCallInfo fcinfo, Oid body_type)
{
	Message		message;

	check_can_write("outbox_enqueue()");
	make_message(fcinfo, body_type, &message);
	message.deliver_at = read_deliver_at(fcinfo);
	append_message(&message);
	PG_RETURN_TEXT_P(message.message_id);
}

static Datum
send_message(FunctionCallInfo fcinfo, Oid body_type)
{
	Message		message;
	const RecordName *record;

	owner_code_refuse();
	make_message(fcinfo, body_type, &message);
	message.at = GetCurrentTimestamp();
	record = session_open_record();
	if (record)
		message.cause = cstring_to_text(record->msgid);
	PG_RETURN_TEXT_P(cstring_to_text(send_now(&message)));
}

/* Makes a message of the arguments that outbox_enqueue() and outbox_send() share. */
static void
make_message(FunctionCallInfo fcinfo, Oid body_type, Message *message)
{
	memset(message, 0, sizeof(*message));
	message->dest = read_dest(fcinfo);
	if (PG_ARGISNULL(ARG_BODY))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("body must not be null")));
	message->body = make_body(body_type, PG_GETARG_DATUM(ARG_BODY));
	if (!PG_ARGISNULL(ARG_HEADERS))
		message->headers = check_headers(PG_GETARG_JSONB_P(ARG_HEADERS));
	message->message_id = PG_ARGISNULL(ARG_MESSAGE_ID) ? random_message_id() : read_message_id(fcinfo);
}

/* Writes a message that has been checked, as one of the open record if there is one. */
static void
append_message(Message *message)
{
	const RecordName *record;

	log_check_size();
	message->at = GetCurrentTimestamp();
	if (message->deliver_at <= message->at)
		message->deliver_at = 0;
	record = session_add_message();
	if (record)
	{
		message->has_key = true;
		message->key = record->key;
		message->cause = cstring_to_text(record->msgid);
	}
	message->id = log_next_id();
	log_append(message);
}

/* Reads the arguments of outbox_enqueue_many(): all that can be refused before the first message is looked at. */
static void
read_bulk(FunctionCallInfo fcinfo, Bulk *bulk)
{
	memset(bulk, 0, sizeof(*bulk));
	bulk->dest = read_dest(fcinfo);
	bulk->bodies = read_list(fcinfo, ARG_BODY, "bodies", &bulk->n);
	bulk->body_type = read_body_type(bulk->bodies);
	if (!PG_ARGISNULL(ARG_HEADERS))
	{
		Jsonb	   *headers = PG_GETARG_JSONB_P(ARG_HEADERS);

		if (JB_ROOT_IS_ARRAY(headers) && !JB_ROOT_IS_SCALAR(headers))
			read_headers_of_each(bulk, headers);
		else
			bulk->headers = check_headers(headers);
	}
	if (!PG_ARGISNULL(ARG_MESSAGE_ID))
	{
		int			n;

		bulk->message_ids = read_list(fcinfo, ARG_MESSAGE_ID, "message_ids", &n);
		if (n != bulk->n)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("bodies and message_ids must be of the same length"),
					 errdetail("The number of bodies is %d, the number of message ids is %d.", bulk->n, n)));
	}
	bulk->deliver_at = read_deliver_at(fcinfo);
}

/* Reads an argument that is an array of one dimension, or empty. */
static ArrayType *
read_list(FunctionCallInfo fcinfo, int arg, const char *what, int *n)
{
	ArrayType  *list;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	list = PG_GETARG_ARRAYTYPE_P(arg);
	if (ARR_NDIM(list) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a one-dimensional array", what),
				 errdetail("It has %d dimensions.", ARR_NDIM(list))));
	*n = ArrayGetNItems(ARR_NDIM(list), ARR_DIMS(list));
	return list;
}

static Oid
read_body_type(ArrayType *bodies)
{
	Oid			type = getBaseType(ARR_ELEMTYPE(bodies));

	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
		case JSONOID:
		case JSONBOID:
		case BYTEAOID:
			return type;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("bodies must be of type text[], json[], jsonb[] or bytea[], not %s[]",
							format_type_be(type))));
	}
	return InvalidOid;			/* not reached */
}

static void
read_headers_of_each(Bulk *bulk, Jsonb *headers)
{
	if (JB_ROOT_COUNT(headers) != bulk->n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bodies and headers must be of the same length"),
				 errdetail("The number of bodies is %d, the number of headers is %u.", bulk->n, JB_ROOT_COUNT(headers)),
				 errhint("A single object is the headers of all messages.")));
	bulk->headers_of_each = headers;
}

/* Writes one message after the other; what is made of one goes before the next. */
static void
append_bulk(const Bulk *bulk)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "outbox message", ALLOCSET_DEFAULT_SIZES);
	ArrayIterator bodies = array_create_iterator(bulk->bodies, 0, NULL);
	ArrayIterator ids = bulk->message_ids ? array_create_iterator(bulk->message_ids, 0, NULL) : NULL;
	MemoryContext caller = MemoryContextSwitchTo(each);
	int			position = 0;
	ErrorContextCallback context = {error_context_stack, name_position, &position};

	error_context_stack = &context;
	while (++position <= bulk->n)
	{
		Message		message = {.dest = bulk->dest, .headers = bulk->headers, .deliver_at = bulk->deliver_at};

		CHECK_FOR_INTERRUPTS();
		message.body = make_body(bulk->body_type, next_element(bodies, "bodies", position));
		message.message_id = ids ?
			check_name(DatumGetTextPP(next_element(ids, "message_ids", position)), "message_id") :
			random_message_id();
		if (bulk->headers_of_each)
			message.headers = headers_at(bulk->headers_of_each, position);
		append_message(&message);
		MemoryContextReset(each);
	}
	error_context_stack = context.previous;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(each);
}

static void
name_position(void *arg)
{
	errcontext("message %d of outbox_enqueue_many()", *(int *) arg);
}

static Datum
next_element(ArrayIterator elements, const char *what, int position)
{
	Datum		value;
	bool		isnull;

	(void) array_iterate(elements, &value, &isnull);
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("element %d of %s must not be null", position, what)));
	return value;
}

/* The headers of one message; null in JSON is none. */
static Jsonb *
headers_at(Jsonb *list, int position)
{
	JsonbValue *value = getIthJsonbValueFromContainer(&list->root, position - 1);

	if (value->type == jbvNull)
		return NULL;
	return check_headers(JsonbValueToJsonb(value));
}

static void
check_can_write(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	owner_code_refuse();
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

/* Reads an argument that names something. */
static text *
read_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	return check_name(PG_GETARG_TEXT_PP(arg), what);
}

static text *
read_dest(FunctionCallInfo fcinfo)
{
	text	   *dest = read_name(fcinfo, ARG_DEST, "dest");

	check_dest(dest);
	return dest;
}

/*
 * Reads an id that is not NULL. The argument is polymorphic: a second function
 * for uuid would make every call without an id ambiguous.
 */
static text *
read_message_id(FunctionCallInfo fcinfo)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, ARG_MESSAGE_ID);

	if (type != TEXTOID && type != UUIDOID)
		type = getBaseType(type);
	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
			return read_name(fcinfo, ARG_MESSAGE_ID, "message_id");
		case UUIDOID:
			return unique_id_to_text(PG_GETARG_UUID_P(ARG_MESSAGE_ID));
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("message_id must be of type text or uuid, not %s", format_type_be(type))));
	}
	return NULL;				/* not reached */
}

/* 0 = at once. */
static TimestampTz
read_deliver_at(FunctionCallInfo fcinfo)
{
	TimestampTz deliver_at;

	if (PG_ARGISNULL(ARG_DELIVER_AT))
		return 0;
	deliver_at = PG_GETARG_TIMESTAMPTZ(ARG_DELIVER_AT);
	if (TIMESTAMP_IS_NOEND(deliver_at))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("deliver_at must be finite")));
	return deliver_at;
}

static text *
random_message_id(void)
{
	pg_uuid_t	id;

	unique_id_random(&id);
	return unique_id_to_text(&id);
}

/* Refuses what is no name: empty, too long, or not to be said in UTF-8. */
static text *
check_name(text *name, const char *what)
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
	iterator = JsonbIteratorInit(&headers->root);
	(void) JsonbIteratorNext(&iterator, &value, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		check_header(&name, &value);
	}
	entry_check_headers(headers);
	return headers;
}

static void
check_header(const JsonbValue *name, const JsonbValue *value)
{
	char	   *key = pnstrdup(name->val.string.val, name->val.string.len);

	if (key[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of a header must not be empty")));
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

/* The bytes to be sent of a body: json as it was written, jsonb as it is printed. */
static bytea *
make_body(Oid type, Datum value)
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

/* The bytes to be sent: text as UTF-8, bytea as it is. */
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
