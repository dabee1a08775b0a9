/*
 * foreign_text.c
 *		Makes text from other servers safe to show, log and store.
 *
 * Called for all text from outside: by redis_link.c, redis_server.c, resp.c and
 * batch_verdict.c for what a Redis or a sentinel says, by tls_failure.c for its
 * certificate, by store_failure.c for stores, by channel.c, channel_dial.c,
 * redis_credentials.c, resolver.c and tls.c for the C library, by postgres_link.c
 * around calls of libpq. Such text may contain any bytes: names of streams and
 * users, another encoding, zeros. Stored as it is it would make a row
 * unreadable, and a dump impossible to restore. Nothing here may raise an error
 * or need a transaction, because links fail outside of transactions.
 *
 * Text is sent as UTF-8, so it is expected to come back as UTF-8. In a database
 * with another encoding only ASCII is kept, because no conversion is sure not
 * to fail. So the C library and libpq are asked for English: of "Connection
 * refused" in Russian, question marks would be left. The sentences around these
 * words are in English as well.
 */
#include "postgres.h"

#include <netdb.h>

#include "mb/pg_wchar.h"

#include "src/foreign_text.h"

#define UNKNOWN		'?'

/* Formatted text may be longer than what is kept, so that it can be cut between characters. */
#define FORMATTED_BYTES	2048

static int	character_length(const char *bytes, size_t length);

/*
 * Copies bytes as text in the encoding of the database; what is not a character
 * becomes "?". Copies as many characters as fit into `size` bytes, including
 * the terminating zero. `safe` may be `bytes`.
 */
void
foreign_text_copy(char *safe, size_t size, const char *bytes, size_t length)
{
	bool		is_utf8 = GetDatabaseEncoding() == PG_UTF8;
	size_t		used = 0;

	while (length > 0)
	{
		int			n = character_length(bytes, length);
		bool		is_kept = n == 1 || (n > 1 && is_utf8);
		size_t		needed = is_kept ? n : 1;

		if (used + needed >= size)
			break;
		if (is_kept)
			memmove(safe + used, bytes, n);
		else
			safe[used] = UNKNOWN;
		used += needed;
		bytes += Max(n, 1);
		length -= Max(n, 1);
	}
	safe[used] = '\0';
}

/* The same for a text that is formatted from foreign parts. */
void
foreign_text_format(char *safe, size_t size, const char *format, va_list args)
{
	char		text[FORMATTED_BYTES];

	vsnprintf(text, sizeof(text), format, args);
	foreign_text_copy(safe, size, text, strlen(text));
}

/*
 * From here on texts of the C library and of libpq are in English, until
 * foreign_text_english_end() is given what this returns. Nothing in between may
 * raise an error. Without memory they stay in the language of the database.
 */
locale_t
foreign_text_english_begin(void)
{
	static locale_t english = (locale_t) 0;

	if (english == (locale_t) 0)
		english = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
	return uselocale(english);
}

void
foreign_text_english_end(locale_t before)
{
	(void) uselocale(before);
}

/* What an error number means. The text is good until the next call. */
const char *
foreign_text_error(int error)
{
	locale_t	before = foreign_text_english_begin();
	const char *text = strerror(error);

	foreign_text_english_end(before);
	return text;
}

/* The same for an error of getaddrinfo(). */
const char *
foreign_text_lookup_error(int error)
{
	locale_t	before = foreign_text_english_begin();
	const char *text = gai_strerror(error);

	foreign_text_english_end(before);
	return text;
}

/*
 * Returns how many bytes the first UTF-8 character has; 0 if it is not one, or
 * one that must not be shown.
 */
static int
character_length(const char *bytes, size_t length)
{
	const unsigned char *first = (const unsigned char *) bytes;
	int			n = pg_utf_mblen(first);

	if (*first < ' ' || *first == 0x7f)
		return 0;
	return n <= length && pg_utf8_islegal(first, n) ? n : 0;
}
