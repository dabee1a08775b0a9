/*
 * enqueue_many.c
 *		outbox_enqueue_many(): many messages in one call.
 *
 * Each is checked and written as outbox_enqueue() would.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "src/api/arguments.h"
#include "src/api/caller_check.h"
#include "src/api/enqueue.h"
#include "src/api/message_id.h"
#include "src/compat.h"
#include "src/stream/headers.h"

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
	ArrayType  *keys;			/* or NULL */
} Bulk;

static void read_bulk(FunctionCallInfo fcinfo, Bulk *bulk);
static ArrayType *read_list(FunctionCallInfo fcinfo, int arg, const char *what, int *n);
static void read_keys(FunctionCallInfo fcinfo, Bulk *bulk);
static Oid	read_body_type(ArrayType *bodies);
static void read_headers_of_each(Bulk *bulk, Jsonb *headers);
static void append_bulk(const Bulk *bulk);
static void name_position(void *arg);
static Datum next_element(ArrayIterator elements, const char *what, int position);
static text *next_key(ArrayIterator keys);
static Jsonb *headers_at(Jsonb *list, int position);

PG_FUNCTION_INFO_V1(outbox_enqueue_many);

/*
 * outbox_enqueue_many(dest, bodies, headers, message_ids, deliver_at, keys): all or
 * none in one call. A query that enqueues row by row enqueues only the rows that
 * its caller fetches.
 */
Datum
outbox_enqueue_many(PG_FUNCTION_ARGS)
{
	Bulk		bulk;

	caller_check_can_store("outbox_enqueue_many()");
	read_bulk(fcinfo, &bulk);
	append_bulk(&bulk);
	PG_RETURN_INT32(bulk.n);
}

/* Reads the arguments of outbox_enqueue_many(): all that can be refused before the first message is looked at. */
static void
read_bulk(FunctionCallInfo fcinfo, Bulk *bulk)
{
	memset(bulk, 0, sizeof(*bulk));
	bulk->dest = argument_dest(fcinfo, ARG_DEST);
	bulk->bodies = read_list(fcinfo, ARG_BODY, "bodies", &bulk->n);
	bulk->body_type = read_body_type(bulk->bodies);
	if (!PG_ARGISNULL(ARG_HEADERS))
	{
		Jsonb	   *headers = PG_GETARG_JSONB_P(ARG_HEADERS);

		if (JB_ROOT_IS_ARRAY(headers) && !JB_ROOT_IS_SCALAR(headers))
			read_headers_of_each(bulk, headers);
		else
			bulk->headers = headers_check(headers);
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
	bulk->deliver_at = argument_deliver_at(fcinfo);
	if (!PG_ARGISNULL(ARG_KEY))
		read_keys(fcinfo, bulk);
}

/* Reads the keys; each is checked when its message is made. */
static void
read_keys(FunctionCallInfo fcinfo, Bulk *bulk)
{
	int			n;

	bulk->keys = read_list(fcinfo, ARG_KEY, "keys", &n);
	if (n != bulk->n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("bodies and keys must be of the same length"),
				 errdetail("The number of bodies is %d, the number of keys is %d.", bulk->n, n)));
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

/* Returns the type of the bodies; for a domain, its base type. */
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

/* Checks the number of headers; each is checked when its message is made. */
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

/* Writes one message after the other, and frees what was made of one before the next. */
static void
append_bulk(const Bulk *bulk)
{
	MemoryContext each = AllocSetContextCreate(CurrentMemoryContext, "outbox message", ALLOCSET_DEFAULT_SIZES);
	ArrayIterator bodies = array_create_iterator(bulk->bodies, 0, NULL);
	ArrayIterator ids = bulk->message_ids ? array_create_iterator(bulk->message_ids, 0, NULL) : NULL;
	ArrayIterator keys = bulk->keys ? array_create_iterator(bulk->keys, 0, NULL) : NULL;
	MemoryContext caller = MemoryContextSwitchTo(each);
	int			position = 0;
	ErrorContextCallback context = {error_context_stack, name_position, &position};

	error_context_stack = &context;
	while (++position <= bulk->n)
	{
		Message		message = {.dest = bulk->dest, .headers = bulk->headers, .deliver_at = bulk->deliver_at};

		CHECK_FOR_INTERRUPTS();
		message.body = argument_body(bulk->body_type, next_element(bodies, "bodies", position));
		if (ids)
			message.message_id = argument_check_name(DatumGetTextPP(next_element(ids, "message_ids", position)), "message_id");
		else
			message_id_make(&message);
		message.partition_key = keys ? next_key(keys) : NULL;
		if (bulk->headers_of_each)
			message.headers = headers_at(bulk->headers_of_each, position);
		enqueue_message(&message);
		MemoryContextReset(each);
	}
	error_context_stack = context.previous;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(each);
}

/* An error context callback. */
static void
name_position(void *arg)
{
	errcontext("message %d of outbox_enqueue_many()", *(int *) arg);
}

/* Reads the next element of an array that has one more. */
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

/* Reads the next key, which may be NULL: the message has none. */
static text *
next_key(ArrayIterator keys)
{
	Datum		value;
	bool		isnull;

	(void) array_iterate(keys, &value, &isnull);
	return isnull ? NULL : argument_check_name(DatumGetTextPP(value), "key");
}

/* Returns the headers of one message, or NULL if they are null in JSON. */
static Jsonb *
headers_at(Jsonb *list, int position)
{
	JsonbValue *value = getIthJsonbValueFromContainer(&list->root, position - 1);

	if (value->type == jbvNull)
		return NULL;
	return headers_check(JsonbValueToJsonb(value));
}
