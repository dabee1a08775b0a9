/*
 * foreign_text.c
 *		Makes text of others fit to be shown, logged and stored.
 *
 * Called by whoever takes text from outside: redis_link.c and verdict.c for
 * what a Redis or a sentinel says, store.c for stores, resolver.c's callers for
 * the C library. Such text may hold any bytes: names of streams and users that
 * others chose, another encoding, zeros. Stored as it is it would make a row
 * unreadable, and a dump with it one that cannot be restored. Nothing here may
 * raise an error or need a transaction, for links fail outside of one.
 *
 * What we send is UTF-8, so that is what is expected back. In a database of
 * another encoding only ASCII is kept: there is no conversion that never fails.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "src/foreign_text.h"

#define UNKNOWN		'?'

/* A formatted text may be longer than what is kept, so that the cut is made between characters. */
#define FORMATTED_BYTES	2048

static int	character_length(const char *bytes, size_t length);

/*
 * Copies bytes as text of the database's encoding: what is no character of it
 * becomes "?". As many characters as fit into `size` with the end of the
 * string. `safe` may be `bytes`.
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

/* The same for a text that is made of foreign parts. */
void
foreign_text_format(char *safe, size_t size, const char *format, va_list args)
{
	char		text[FORMATTED_BYTES];

	vsnprintf(text, sizeof(text), format, args);
	foreign_text_copy(safe, size, text, strlen(text));
}

/* How many bytes the first character of UTF-8 has; 0 if it is none, or one that must not be shown. */
static int
character_length(const char *bytes, size_t length)
{
	const unsigned char *first = (const unsigned char *) bytes;
	int			n = pg_utf_mblen(first);

	if (*first < ' ' || *first == 0x7f)
		return 0;
	return n <= length && pg_utf8_islegal(first, n) ? n : 0;
}
