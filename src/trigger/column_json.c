/*
 * column_json.c
 *		Columns of a row as JSON: what row_to_json() would print of them.
 *
 * Called by capture_change.c for each row that was changed. What can be looked
 * up once is looked up when the plan of the trigger is made, and the most common
 * types are printed here; any other is printed by to_json().
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "src/compat.h"
#include "src/trigger/column_json.h"
#include "src/trigger/key_settings.h"

typedef struct PrintedColumn
{
	AttrNumber	number;
	Oid			type;			/* of a domain, its base type */
	bool		byval;
	int16		length;
	char	   *label;			/* the name, with quotes and a colon */
	int			label_size;
	FmgrInfo	print;			/* its output function, or to_json() */
} PrintedColumn;

struct ColumnJson
{
	int			n;
	bool		has_settings;	/* settings matter for one of the columns */
	PrintedColumn columns[FLEXIBLE_ARRAY_MEMBER];
};

static AttrNumber find_column(Relation table, const char *name);
static void add_column(ColumnJson *json, Relation table, AttrNumber number);
static void find_printer(PrintedColumn *column);
static void write_value(PrintedColumn *column, Datum value, StringInfo out);
static void write_plain(PrintedColumn *column, Datum value, StringInfo out);
static void unescape(StringInfo json);
static void write_number(PrintedColumn *column, Datum value, StringInfo out);

/*
 * Prepares to print columns of a table; all of them if no names are given.
 * Raises 42703 if there is no such column, 42701 if one is named twice.
 */
ColumnJson *
column_json_make(Relation table, List *names)
{
	ColumnJson *json = palloc0(offsetof(ColumnJson, columns) + (RelationGetNumberOfAttributes(table) + list_length(names)) * sizeof(PrintedColumn));
	ListCell   *name;

	foreach(name, names)
		add_column(json, table, find_column(table, lfirst(name)));
	for (int i = 1; names == NIL && i <= RelationGetNumberOfAttributes(table); i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(table), i - 1);

		if (!column->attisdropped && !compat_is_virtual(column))
			add_column(json, table, i);
	}
	return json;
}

/*
 * Prepares to print the primary key of a table, which may be deferrable; returns NULL if it has none.
 * Its columns come in the order of the key: those of the table may have another order in each partition.
 */
ColumnJson *
column_json_make_of_primary_key(Relation table)
{
	Oid			constraint;
	Relation	index;
	ColumnJson *json;

	if (bms_is_empty(get_primary_key_attnos(RelationGetRelid(table), true, &constraint)))
		return NULL;
	index = index_open(get_constraint_index(constraint), AccessShareLock);
	json = palloc0(offsetof(ColumnJson, columns) + index->rd_index->indnkeyatts * sizeof(PrintedColumn));
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
		add_column(json, table, index->rd_index->indkey.values[i]);
	index_close(index, AccessShareLock);
	return json;
}

/* Appends an object. */
void
column_json_write(ColumnJson *json, TupleTableSlot *row, StringInfo out)
{
	slot_getallattrs(row);
	appendStringInfoChar(out, '{');
	for (int i = 0; i < json->n; i++)
	{
		PrintedColumn *column = &json->columns[i];

		if (i > 0)
			appendStringInfoChar(out, ',');
		appendBinaryStringInfo(out, column->label, column->label_size);
		if (row->tts_isnull[column->number - 1])
			appendBinaryStringInfo(out, "null", 4);
		else
			write_value(column, row->tts_values[column->number - 1], out);
	}
	appendStringInfoChar(out, '}');
}

/*
 * Returns columns as a text of at most `limit` bytes that tells rows apart: the
 * value of a single column as it is, unless that is NULL or empty; otherwise the
 * object. The settings of the session do not matter.
 */
text *
column_json_to_text(ColumnJson *json, TupleTableSlot *row, int limit)
{
	StringInfoData out;
	int			encoding = GetDatabaseEncoding() == PG_SQL_ASCII ? PG_UTF8 : GetDatabaseEncoding(); /* as it is sent */
	int			nest_level = json->has_settings ? key_settings_take() : 0;

	initStringInfo(&out);
	slot_getallattrs(row);
	if (json->n == 1 && !row->tts_isnull[json->columns[0].number - 1])
		write_plain(&json->columns[0], row->tts_values[json->columns[0].number - 1], &out);
	if (out.len == 0)
		column_json_write(json, row, &out);
	if (json->has_settings)
		key_settings_return(nest_level);
	return cstring_to_text_with_len(out.data, pg_encoding_mbcliplen(encoding, out.data, out.len, limit));
}

/* Appends a value that is not NULL, without quotes; one of type char(n) as it is when it is cast to text. */
static void
write_plain(PrintedColumn *column, Datum value, StringInfo out)
{
	if (column->type == TEXTOID || column->type == VARCHAROID || column->type == BPCHAROID)
	{
		text	   *string = DatumGetTextPP(column->type == BPCHAROID ? DirectFunctionCall1(rtrim1, value) : value);

		appendBinaryStringInfo(out, VARDATA_ANY(string), VARSIZE_ANY_EXHDR(string));
		return;
	}
	write_value(column, value, out);
	if (out->len < 2 || out->data[0] != '"' || out->data[out->len - 1] != '"')
		return;
	if (column->type != JSONOID && memchr(out->data, '\\', out->len))
		unescape(out);
	else
	{
		memmove(out->data, out->data + 1, out->len - 2);
		out->len -= 2;
	}
}

/*
 * Replaces a JSON string by what it stands for. One that is not of type json has
 * only escapes that text can have.
 */
static void
unescape(StringInfo json)
{
	Jsonb	   *parsed = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json->data)));
	JsonbValue	string;

	(void) JsonbExtractScalar(&parsed->root, &string);
	resetStringInfo(json);
	appendBinaryStringInfo(json, string.val.string.val, string.val.string.len);
}

/*
 * Check whether two rows differ in any of the columns. A value out of line that
 * an UPDATE has left alone is stored in the same place, and not fetched; one that
 * is only stored in another form is the same, too.
 */
bool
column_json_differs(const ColumnJson *json, TupleTableSlot *before, TupleTableSlot *after)
{
	slot_getallattrs(before);
	slot_getallattrs(after);
	for (int i = 0; i < json->n; i++)
	{
		const PrintedColumn *column = &json->columns[i];
		int			at = column->number - 1;

		if (before->tts_isnull[at] != after->tts_isnull[at])
			return true;
		if (!before->tts_isnull[at] &&
			!datumIsEqual(before->tts_values[at], after->tts_values[at], column->byval, column->length) &&
			!datum_image_eq(before->tts_values[at], after->tts_values[at], column->byval, column->length))
			return true;
	}
	return false;
}

/* Returns the number of a column. */
static AttrNumber
find_column(Relation table, const char *name)
{
	AttrNumber	number = get_attnum(RelationGetRelid(table), name);

	if (number <= 0 || compat_is_virtual(TupleDescAttr(RelationGetDescr(table), number - 1)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" cannot be captured", name, RelationGetRelationName(table)),
				 errdetail("The table has no stored column with this name."),
				 errhint("If it was dropped or renamed, call outbox_capture() again, or outbox_uncapture().")));
	return number;
}

/* Adds a column to those that are printed. */
static void
add_column(ColumnJson *json, Relation table, AttrNumber number)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(table), number - 1);
	PrintedColumn *column = &json->columns[json->n];
	StringInfoData label;

	for (int i = 0; i < json->n; i++)
	{
		if (json->columns[i].number == number)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("column \"%s\" specified more than once", NameStr(attribute->attname))));
	}
	json->n++;
	initStringInfo(&label);
	escape_json(&label, NameStr(attribute->attname));
	appendStringInfoChar(&label, ':');
	column->number = number;
	column->type = getBaseType(attribute->atttypid);
	column->byval = attribute->attbyval;
	column->length = attribute->attlen;
	json->has_settings |= key_settings_matter(column->type);
	column->label = label.data;
	column->label_size = label.len;
	find_printer(column);
}

/* Finds the function that prints a column, as write_value() will need it. */
static void
find_printer(PrintedColumn *column)
{
	Oid			output;
	bool		is_varlena;

	switch (column->type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case TEXTOID:
		case VARCHAROID:
		case JSONOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			break;
		case BPCHAROID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case UUIDOID:
		case JSONBOID:
			getTypeOutputInfo(column->type, &output, &is_varlena);
			fmgr_info(output, &column->print);
			break;
		default:
			fmgr_info(F_TO_JSON, &column->print);
			fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSON, JSONOID, list_make1(makeNullConst(column->type, -1, InvalidOid)),
													 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL), &column->print);
	}
}

/* Appends a value that is not NULL. */
static void
write_value(PrintedColumn *column, Datum value, StringInfo out)
{
	char		moment[MAXDATELEN + 1];
	text	   *json;

	switch (column->type)
	{
		case BOOLOID:
			appendStringInfoString(out, DatumGetBool(value) ? "true" : "false");
			break;
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			write_number(column, value, out);
			break;
		case TEXTOID:
		case VARCHAROID:
			escape_json(out, TextDatumGetCString(value));
			break;
		case BPCHAROID:
		case UUIDOID:
			escape_json(out, OutputFunctionCall(&column->print, value));
			break;
		case JSONBOID:
			appendStringInfoString(out, OutputFunctionCall(&column->print, value));
			break;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			JsonEncodeDateTime(moment, value, column->type, NULL);
			appendStringInfoChar(out, '"');
			appendStringInfoString(out, moment);
			appendStringInfoChar(out, '"');
			break;
		default:
			json = DatumGetTextPP(column->type == JSONOID ? value : FunctionCall1(&column->print, value));
			appendBinaryStringInfo(out, VARDATA_ANY(json), VARSIZE_ANY_EXHDR(json));
	}
}

/* Appends a number; NaN and the infinities are strings. */
static void
write_number(PrintedColumn *column, Datum value, StringInfo out)
{
	char		digits[MAXINT8LEN + 1];
	char	   *printed;

	switch (column->type)
	{
		case INT2OID:
			appendBinaryStringInfo(out, digits, pg_itoa(DatumGetInt16(value), digits));
			return;
		case INT4OID:
			appendBinaryStringInfo(out, digits, pg_ltoa(DatumGetInt32(value), digits));
			return;
		case INT8OID:
			appendBinaryStringInfo(out, digits, pg_lltoa(DatumGetInt64(value), digits));
			return;
		default:
			printed = OutputFunctionCall(&column->print, value);
			if (IsValidJsonNumber(printed, strlen(printed)))
				appendStringInfoString(out, printed);
			else
				escape_json(out, printed);
	}
}
