/*
 * utf8.c
 *		Tells whether a text can be converted to UTF-8, without an error if it cannot.
 *
 * Called by lanes.c and cloudevent.c for names that are sent, and by log_row.c for what
 * the key of a record is made of.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "mb/pg_wchar.h"

#include "src/compat.h"
#include "src/utf8.h"

/*
 * Check whether a text can be converted to UTF-8. One that came by a dump of another
 * database need not be. Needs an open transaction.
 */
bool
utf8_is_possible(const text *value)
{
	int			encoding = GetDatabaseEncoding();
	unsigned char *string = (unsigned char *) VARDATA_ANY(value);
	int			length = VARSIZE_ANY_EXHDR(value);
	unsigned char *converted;
	Oid			conversion;
	bool		can;

	if (encoding == PG_UTF8)
		return true;
	if (encoding == PG_SQL_ASCII)
		return pg_verify_mbstr(PG_UTF8, (char *) string, length, true);
	conversion = FindDefaultConversionProc(encoding, PG_UTF8);
	converted = palloc(length * MAX_CONVERSION_GROWTH + 1);
	can = OidIsValid(conversion) &&
		pg_do_encoding_conversion_buf(conversion, encoding, PG_UTF8, string, length,
									  converted, length * MAX_CONVERSION_GROWTH + 1, true) == length;
	pfree(converted);
	return can;
}
