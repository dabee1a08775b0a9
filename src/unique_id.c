/*
 * unique_id.c
 *		Makes ids for messages, windows and instances, and their usual form.
 *
 * Called for every message, so random bytes are fetched by the page: a system
 * call for each id costs more than the insert of a row.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "src/compat.h"
#include "src/unique_id.h"

#define UUID_TEXT_LENGTH	36

/* What the digits of a UUID stand for in its usual form; -1 = nothing. By ASCII. */
static const signed char digit_values[128] = {
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1, -1, -1,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	-1, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1
};

static inline char *write_hex(char *at, const unsigned char *bytes, int n);

/* Makes a version 4 UUID. */
void
unique_id_random(pg_uuid_t *id)
{
	static unsigned char page[4096];
	static size_t unused = 0;

	if (unused < UUID_LEN)
	{
		if (!pg_strong_random(page, sizeof(page)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		unused = sizeof(page);
	}
	unused -= UUID_LEN;
	memcpy(id->data, page + unused, UUID_LEN);
	memset(page + unused, 0, UUID_LEN); /* used once */

	id->data[6] = (id->data[6] & 0x0f) | 0x40;	/* version */
	id->data[8] = (id->data[8] & 0x3f) | 0x80;	/* variant */
}

/* Returns the usual form of a UUID as palloc'd text: what uuid_out() prints, which takes ten times as long. */
text *
unique_id_to_text(const pg_uuid_t *id)
{
	text	   *result = palloc(VARHDRSZ + UUID_TEXT_LENGTH);
	char	   *at = VARDATA(result);

	SET_VARSIZE(result, VARHDRSZ + UUID_TEXT_LENGTH);
	at = write_hex(at, id->data, 4);
	*at++ = '-';
	at = write_hex(at, id->data + 4, 2);
	*at++ = '-';
	at = write_hex(at, id->data + 6, 2);
	*at++ = '-';
	at = write_hex(at, id->data + 8, 2);
	*at++ = '-';
	write_hex(at, id->data + 10, 6);
	return result;
}

/* Writes bytes as digits; returns where it ended. */
static inline char *
write_hex(char *at, const unsigned char *bytes, int n)
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < n; i++)
	{
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 0x0f];
	}
	return at;
}

/* Check whether a text is what unique_id_to_text() makes of a UUID, and sets that. */
bool
unique_id_from_text(const text *string, pg_uuid_t *id)
{
	const unsigned char *at = (const unsigned char *) VARDATA_ANY(string);
	int			digits = 0;
	int			bytes = 0;

	if (VARSIZE_ANY_EXHDR(string) != UUID_TEXT_LENGTH ||
		at[8] != '-' || at[13] != '-' || at[18] != '-' || at[23] != '-')
		return false;
	for (int i = 0; i < UUID_LEN; i++, at += 2)
	{
		int			value;

		if (i == 4 || i == 6 || i == 8 || i == 10)
			at++;
		value = digit_values[at[0] & 0x7f] * 16 | digit_values[at[1] & 0x7f];
		digits |= value;
		bytes |= at[0] | at[1];
		id->data[i] = (unsigned char) value;
	}
	return digits >= 0 && bytes < 0x80;
}
