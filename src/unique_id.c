/*
 * unique_id.c
 *		Makes ids for messages, windows and instances, and keys for records.
 *
 * Called for every message, so random bytes are fetched by the page, because a
 * system call for each id costs more than the insert of a row; and the hash
 * context is kept for the life of the backend, because making one costs more
 * than hashing.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/resowner.h"

#include "src/unique_id.h"

#define UUID_TEXT_LENGTH	36

static pg_cryptohash_ctx *hash_context(void);
static void hash_part(pg_cryptohash_ctx *context, const char *part, size_t length);

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

/*
 * Computes the first 128 bits of the SHA-256 of two strings, each preceded by
 * its length, so that ('a', 'bc') and ('ab', 'c') differ.
 */
void
unique_id_hash(const char *first, size_t first_length,
			   const char *second, size_t second_length, pg_uuid_t *key)
{
	pg_cryptohash_ctx *context = hash_context();
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	if (pg_cryptohash_init(context) < 0)
		elog(ERROR, "could not hash: %s", pg_cryptohash_error(context));
	hash_part(context, first, first_length);
	hash_part(context, second, second_length);
	if (pg_cryptohash_final(context, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not hash: %s", pg_cryptohash_error(context));
	memcpy(key->data, digest, UUID_LEN);
}

/*
 * Returns the hash context. It has a resource owner of its own, so it is not
 * freed at the end of a transaction.
 */
static pg_cryptohash_ctx *
hash_context(void)
{
	static pg_cryptohash_ctx *context;

	if (context == NULL)
	{
		ResourceOwner caller = CurrentResourceOwner;

		CurrentResourceOwner = ResourceOwnerCreate(NULL, "outbox hash");
		context = pg_cryptohash_create(PG_SHA256);
		CurrentResourceOwner = caller;
		if (context == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of memory")));
	}
	return context;
}

/* Hashes a string, preceded by its length. */
static void
hash_part(pg_cryptohash_ctx *context, const char *part, size_t length)
{
	uint32		prefix = pg_hton32((uint32) length);

	if (pg_cryptohash_update(context, (uint8 *) &prefix, sizeof(prefix)) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) part, length) < 0)
		elog(ERROR, "could not hash: %s", pg_cryptohash_error(context));
}
