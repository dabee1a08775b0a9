/*
 * sha256.c
 *		SHA-256 of short strings, one hash at a time.
 *
 * Called by record_name.c, for every incoming message: so what hashing needs is kept
 * for the life of the backend. OpenSSL is asked directly where PostgreSQL was built
 * with it: PostgreSQL's own interface has it look the algorithm up by its name for
 * each hash, which takes several times as long as the hash.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "utils/memutils.h"

#include "src/compat.h"
#include "src/record/sha256.h"

#ifdef USE_OPENSSL

static EVP_MD_CTX *context;

/* Begins a hash; one that was begun and not ended is forgotten. */
void
sha256_begin(void)
{
	static const EVP_MD *algorithm;

	if (algorithm == NULL && (algorithm = compat_openssl_sha256()) == NULL)
		elog(ERROR, "OpenSSL has no SHA-256");
	if (context == NULL && (context = EVP_MD_CTX_new()) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	if (EVP_DigestInit_ex(context, algorithm, NULL) != 1)
		elog(ERROR, "could not begin a hash");
}

/* Adds bytes to the hash. */
void
sha256_add(const void *bytes, size_t length)
{
	if (EVP_DigestUpdate(context, bytes, length) != 1)
		elog(ERROR, "could not add to a hash");
}

/* Ends the hash and returns its SHA256_BYTES. */
void
sha256_end(uint8 *digest)
{
	if (EVP_DigestFinal_ex(context, digest, NULL) != 1)
		elog(ERROR, "could not end a hash");
}

#else							/* PostgreSQL hashes by itself */

static pg_cryptohash_ctx *context;

/* The same. The context would be freed with the current memory context. */
void
sha256_begin(void)
{
	if (context == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

		context = pg_cryptohash_create(PG_SHA256);
		MemoryContextSwitchTo(caller);
		if (context == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of memory")));
	}
	if (pg_cryptohash_init(context) < 0)
		elog(ERROR, "could not begin a hash: %s", pg_cryptohash_error(context));
}

void
sha256_add(const void *bytes, size_t length)
{
	if (pg_cryptohash_update(context, bytes, length) < 0)
		elog(ERROR, "could not add to a hash: %s", pg_cryptohash_error(context));
}

void
sha256_end(uint8 *digest)
{
	if (pg_cryptohash_final(context, digest, SHA256_BYTES) < 0)
		elog(ERROR, "could not end a hash: %s", pg_cryptohash_error(context));
}

#endif
