/*
 * english.c
 *		Has the C library and libpq say in English what went wrong.
 *
 * Called by channel.c, redis_connect.c, resolver.c, tls.c and tls_failure.c for
 * errors of the C library, by postgres_link.c around calls of libpq. They would
 * use the language and the encoding of the database, of which foreign_text.c
 * keeps ASCII alone unless that is UTF-8: of "Connection refused" in Russian,
 * question marks would be left. The sentences around these words are in English
 * as well. Nothing here may raise an error.
 */
#include "postgres.h"

#include <netdb.h>

#include "src/english.h"

/*
 * From here on texts are in English, until english_end() is given what this
 * returns. Nothing in between may raise an error. Without memory they stay in
 * the language of the database.
 */
locale_t
english_begin(void)
{
	static locale_t english = (locale_t) 0;

	if (english == (locale_t) 0)
		english = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
	return uselocale(english);
}

void
english_end(locale_t before)
{
	(void) uselocale(before);
}

/* What an error number means. The text is good until the next call. */
const char *
english_error(int error)
{
	locale_t	before = english_begin();
	const char *text = strerror(error);

	english_end(before);
	return text;
}

/* The same for an error of getaddrinfo(). */
const char *
english_lookup_error(int error)
{
	locale_t	before = english_begin();
	const char *text = gai_strerror(error);

	english_end(before);
	return text;
}
