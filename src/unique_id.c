/*
 * unique_id.c
 *		Makes ids for messages, windows and instances.
 *
 * Called for every message, so random bytes are fetched by the page: a system
 * call for each id costs more than the insert of a row.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "src/compat.h"
#include "src/unique_id.h"

#define UUID_TEXT_LENGTH	36

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
	static const char digits[] = "0123456789abcdef";
	text	   *result = palloc(VARHDRSZ + UUID_TEXT_LENGTH);
	char	   *at = VARDATA(result);

	SET_VARSIZE(result, VARHDRSZ + UUID_TEXT_LENGTH);
	for (int i = 0; i < UUID_LEN; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[id->data[i] >> 4];
		*at++ = digits[id->data[i] & 0x0f];
	}
	return result;
}
