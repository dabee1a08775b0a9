/*
 * nservicebus.c
 *		Messages that are stored as an array of operations, as NServiceBus does.
 *
 * Called by forward.c. An operation is an object with the members MessageId,
 * Headers, Options, and Body (SQL persistence) or Message (NHibernate
 * persistence): bytes in base64, or in older versions as an array of numbers.
 * One of the options says where it is to go: Destination for a command, the
 * EventType for what is published. Others say when: DeliverAt is a time,
 * DelayDeliveryFor a span of time.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "src/api/arguments.h"
#include "src/compat.h"
#include "src/trigger/nservicebus.h"

#define MAX_SPAN_DAYS	10675199	/* TimeSpan.MaxValue of .NET */

static JsonbValue *member(JsonbValue *object, const char *name);
static text *text_member(JsonbValue *object, const char *name);
static text *event_type(JsonbValue *options);
static bytea *read_body(JsonbValue *operation);
static bytea *bytes_of_array(const JsonbValue *array);
static TimestampTz read_deliver_at(JsonbValue *options);
static TimestampTz parse_moment(const char *moment);
static TimestampTz parse_span(const char *span);
pg_noreturn static void refuse(const char *what);

/*
 * Reads one of several operations into a message, whose headers are not checked
 * yet and may be NULL. Leaves dest as it is if that is set.
 */
void
nservicebus_read_operation(Jsonb *operations, int position, Message *message)
{
	JsonbValue *operation = getIthJsonbValueFromContainer(&operations->root, position);
	JsonbValue *options;
	JsonbValue *headers;

	if (operation->type != jbvBinary || !JsonContainerIsObject(operation->val.binary.data))
		refuse("An operation must be an object.");
	options = member(operation, "Options");
	if (message->dest == NULL)
		message->dest = text_member(options, "Destination");
	if (message->dest == NULL)
		message->dest = event_type(options);
	message->message_id = text_member(operation, "MessageId");
	headers = member(operation, "Headers");
	if (headers && (headers->type != jbvBinary || !JsonContainerIsObject(headers->val.binary.data)))
		refuse("The headers of an operation must be an object.");
	message->headers = headers ? JsonbValueToJsonb(headers) : NULL;
	message->body = read_body(operation);
	message->deliver_at = read_deliver_at(options);
}

/* Returns a member of an object, or NULL if it is missing or null. */
static JsonbValue *
member(JsonbValue *object, const char *name)
{
	JsonbValue *value;

	if (object == NULL || object->type != jbvBinary || !JsonContainerIsObject(object->val.binary.data))
		return NULL;
	value = getKeyJsonValueFromContainer(object->val.binary.data, name, strlen(name), NULL);
	return value && value->type != jbvNull ? value : NULL;
}

/* Returns a member that is a string, or NULL. */
static text *
text_member(JsonbValue *object, const char *name)
{
	JsonbValue *value = member(object, name);

	return value && value->type == jbvString ? cstring_to_text_with_len(value->val.string.val, value->val.string.len) : NULL;
}

/*
 * Returns the name of the type of an event, without its assembly, which is after a
 * comma outside of brackets: the assembly has a version, and subscribers would
 * wait at the stream of the former one. NULL if there is none.
 */
static text *
event_type(JsonbValue *options)
{
	JsonbValue *type = member(options, "EventType");
	int			brackets = 0;
	int			length = 0;

	if (type == NULL || type->type != jbvString)
		return NULL;
	while (length < type->val.string.len && (type->val.string.val[length] != ',' || brackets > 0))
	{
		brackets += type->val.string.val[length] == '[';
		brackets -= type->val.string.val[length] == ']';
		length++;
	}
	return cstring_to_text_with_len(type->val.string.val, length);
}

/* Returns the bytes of the body, which may be missing. */
static bytea *
read_body(JsonbValue *operation)
{
	JsonbValue *body = member(operation, "Body");

	if (body == NULL)
		body = member(operation, "Message");
	if (body == NULL)
		return (bytea *) cstring_to_text("");
	if (body->type == jbvString)
		return DatumGetByteaP(DirectFunctionCall2(binary_decode,
												  PointerGetDatum(cstring_to_text_with_len(body->val.string.val, body->val.string.len)),
												  CStringGetTextDatum("base64")));
	if (body->type != jbvBinary || !JsonContainerIsArray(body->val.binary.data))
		refuse("The body of an operation must be a string or an array.");
	return bytes_of_array(body);
}

/* Returns the bytes that an array has as numbers. */
static bytea *
bytes_of_array(const JsonbValue *array)
{
	int			n = JsonContainerSize(array->val.binary.data);
	bytea	   *bytes = palloc(VARHDRSZ + n);

	SET_VARSIZE(bytes, VARHDRSZ + n);
	for (int i = 0; i < n; i++)
	{
		JsonbValue *number = getIthJsonbValueFromContainer(array->val.binary.data, i);
		int32		byte = number->type == jbvNumeric ?
			DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(number->val.numeric))) : -1;

		if (byte < 0 || byte > 255)
			refuse("The body of an operation must be an array of bytes.");
		VARDATA(bytes)[i] = (char) byte;
		pfree(number);
	}
	return bytes;
}

/* Returns when an operation is due; 0 = at once. */
static TimestampTz
read_deliver_at(JsonbValue *options)
{
	text	   *moment = text_member(options, "DeliverAt");
	text	   *span = text_member(options, "DelayDeliveryFor");

	if (moment)
		return parse_moment(text_to_cstring(moment));
	if (span)
		return parse_span(text_to_cstring(span));
	return 0;
}

/* Reads "2026-11-22 11:38:00:123456 Z", whose third colon PostgreSQL takes for an error. */
static TimestampTz
parse_moment(const char *moment)
{
	char	   *copy = pstrdup(moment);
	char	   *last = strrchr(copy, ':');

	if (last && last - copy == strlen("2026-11-22 11:38:00"))
		*last = '.';
	return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(copy),
												   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/* Reads "1.02:03:04.5678901", a time from now on: days, hours, minutes, seconds. One that is negative is over. */
static TimestampTz
parse_span(const char *span)
{
	int			days;
	int			end = 0;
	Interval   *time;

	if (span[0] == '-')
		return 0;
	if (sscanf(span, "%8d.%n", &days, &end) != 1 || end == 0)
		days = end = 0;
	time = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(span + end),
												 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	if (days > MAX_SPAN_DAYS || time->time > USECS_PER_DAY || time->day != 0 || time->month != 0)
		refuse("DelayDeliveryFor must be a time span of .NET.");
	return GetCurrentTimestamp() + days * USECS_PER_DAY + time->time;
}

/* Raises an error about operations that are none. */
static void
refuse(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid operations"),
			 errdetail_internal("%s", what)));
}
