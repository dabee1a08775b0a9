/*
 * key_settings.c
 *		Settings under which the key of a message is printed, and expressions are read.
 *
 * Called by column_json.c and forward.c, and by column_expression.c for the constants in
 * an expression. A row must have one key, whichever session changes it: only messages of
 * one key stay in order. But sessions print a timestamptz in time zones of their own, and
 * have other settings for dates, intervals, bytea and floating-point numbers. (What
 * depends on search_path, lc_monetary or lc_time is left as it is: functions that are
 * called in the key may need them.)
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/xml.h"

#include "src/settings.h"
#include "src/trigger/key_settings.h"

/* Check whether a value of a type may be printed differently by different sessions. */
bool
key_settings_matter(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case UUIDOID:
		case JSONOID:
		case JSONBOID:
			return false;
		default:
			return true;
	}
}

/*
 * Sets the defaults of PostgreSQL, with times in UTC, where this session has anything
 * else. Returns what key_settings_return() needs; after an error that is not needed.
 */
int
key_settings_take(void)
{
	int			nest_level = NewGUCNestLevel();

	if (strcmp(pg_get_timezone_name(session_timezone), "UTC") != 0)
		settings_override("TimeZone", "UTC");
	if (DateStyle != USE_ISO_DATES || DateOrder != DATEORDER_MDY)
		settings_override("DateStyle", "ISO, MDY");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		settings_override("IntervalStyle", "postgres");
	if (extra_float_digits <= 0)
		settings_override("extra_float_digits", "1");
	if (bytea_output != BYTEA_OUTPUT_HEX)
		settings_override("bytea_output", "hex");
	if (quote_all_identifiers)
		settings_override("quote_all_identifiers", "off");
	if (xmlbinary != XMLBINARY_BASE64)
		settings_override("xmlbinary", "base64");
	return nest_level;
}

/* Restores what key_settings_take() has changed. */
void
key_settings_return(int nest_level)
{
	/*
	 * As at the end of a function with settings of its own: what code in the
	 * key has set stays.
	 */
	AtEOXact_GUC(true, nest_level);
}
