/*
 * unique_id.c
 *		Makes ids for messages, windows and instances, and their usual form; and short names.
 *
 * Called for every message, so random bytes are fetched by the page: a system
 * call for each id costs more than the insert of a row.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"

#include "src/compat.h"
#include "src/unique_id.h"

#define UUID_TEXT_LENGTH	(UNIQUE_ID_BYTES - 1)

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

/* Where the two digits of each byte stand. */
static const uint8 pair_places[UUID_LEN] = {0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34};

/* The two digits of each byte, by its value. */
static char pairs[256][2];

static void put_digits(const pg_uuid_t *id, char *at);
static void make_pairs(void);

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

/* Writes a random name of RANDOM_NAME_BYTES, in hexadecimal, that has to differ only from few others. */
void
unique_id_name(char *name)
{
	snprintf(name, RANDOM_NAME_BYTES, "%08x", pg_prng_uint32(&pg_global_prng_state));
}

/* Writes the usual form of a UUID as a C string of UNIQUE_ID_BYTES: what uuid_out() prints, which takes ten times as long. */
void
unique_id_write(const pg_uuid_t *id, char *string)
{
	put_digits(id, string);
	string[UUID_TEXT_LENGTH] = '\0';
}

/* Returns the same as palloc'd text. */
text *
unique_id_to_text(const pg_uuid_t *id)
{
	text	   *result = palloc(VARHDRSZ + UUID_TEXT_LENGTH);

	SET_VARSIZE(result, VARHDRSZ + UUID_TEXT_LENGTH);
	put_digits(id, VARDATA(result));
	return result;
}

/* Writes the digits of a UUID, with the hyphens between them. */
static void
put_digits(const pg_uuid_t *id, char *at)
{
	if (pairs[0][0] == '\0')
		make_pairs();
	for (int i = 0; i < UUID_LEN; i++)
		memcpy(at + pair_places[i], pairs[id->data[i]], sizeof(pairs[0]));
	at[8] = at[13] = at[18] = at[23] = '-';
}

/* Prepares the digits of each byte, once for a process. */
static void
make_pairs(void)
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < lengthof(pairs); i++)
	{
		pairs[i][0] = digits[i >> 4];
		pairs[i][1] = digits[i & 0x0f];
	}
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
	for (int i = 0; i < UUID_LEN; i++)
	{
		const unsigned char *pair = at + pair_places[i];
		int			value = digit_values[pair[0] & 0x7f] * 16 | digit_values[pair[1] & 0x7f];

		digits |= value;
		bytes |= pair[0] | pair[1];
		id->data[i] = (unsigned char) value;
	}
	return digits >= 0 && bytes < 0x80;
}
