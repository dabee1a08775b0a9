/*
 * field.c
 *		The names and values of fields of an entry: text as UTF-8, headers as text.
 *
 * Called by entry.c and cloudevent.c, which decide what the fields are; by headers.c,
 * which checks headers; and by route.c and send.c for names of streams.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "src/compat.h"
#include "src/limits.h"
#include "src/stream/field.h"

/*
 * Begins a field: passes its name to the sink if names are written. Returns
 * whether values are, so that the value is due.
 */
bool
field_begin(const char *name, EntryParts parts, EntrySink sink, void *arg)
{
	if (parts & ENTRY_NAMES)
		field_write_string(name, sink, arg);
	return (parts & ENTRY_VALUES) != 0;
}

/* Passes a text to the sink, as UTF-8. */
void
field_write_text(const text *value, EntrySink sink, void *arg)
{
	field_write_utf8(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), sink, arg);
}

/* Passes a string that is ASCII to the sink. */
void
field_write_string(const char *string, EntrySink sink, void *arg)
{
	sink(string, strlen(string), arg);
}

/* Passes a string in the encoding of the database to the sink, as UTF-8. */
void
field_write_utf8(const char *string, int length, EntrySink sink, void *arg)
{
	char	   *converted = pg_server_to_any(string, length, PG_UTF8);

	sink(converted, converted == string ? length : strlen(converted), arg);
	if (converted != string)
		pfree(converted);
}

/* Passes a body to the sink; it is fetched if it is stored out of line. */
void
field_write_body(bytea *body, EntrySink sink, void *arg)
{
	bytea	   *bytes = DatumGetByteaPP(PointerGetDatum(body));

	sink(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes), arg);
}

/* Passes the value of a header to the sink. */
void
field_write_header_value(const JsonbValue *name, const JsonbValue *value, EntrySink sink, void *arg)
{
	if (value->type == jbvString)
		field_write_utf8(value->val.string.val, value->val.string.len, sink, arg);
	else if (value->type == jbvBool)
		field_write_string(value->val.boolean ? "true" : "false", sink, arg);
	else if (value->type == jbvNumeric)
	{
		char	   *number = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));

		field_write_string(number, sink, arg);
		pfree(number);
	}
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("header \"%.*s\" must be a string, a number or a boolean",
						name->val.string.len, name->val.string.val)));
}

/*
 * Returns an iterator that names and values of headers can be read from. Raises
 * 22023 if they are not a JSON object, and 54000 if they are too many: with more
 * fields than Lua in Redis can unpack, the script would end in the middle of its
 * batch.
 */
JsonbIterator *
field_open_headers(Jsonb *headers)
{
	JsonbIterator *iterator;
	JsonbValue	object;

	if (!JB_ROOT_IS_OBJECT(headers))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("headers must be a JSON object")));
	if (JB_ROOT_COUNT(headers) > MAX_HEADERS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many headers"),
				 errdetail("There are %u; %d are allowed.", JB_ROOT_COUNT(headers), MAX_HEADERS)));
	iterator = JsonbIteratorInit(&headers->root);
	(void) JsonbIteratorNext(&iterator, &object, true);
	return iterator;
}

/* Reads the next header. Returns false if there is none. */
bool
field_next_header(JsonbIterator **headers, JsonbValue *name, JsonbValue *value)
{
	CHECK_FOR_INTERRUPTS();
	if (JsonbIteratorNext(headers, name, true) != WJB_KEY)
		return false;
	(void) JsonbIteratorNext(headers, value, true);
	return true;
}
