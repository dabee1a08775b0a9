/*
 * redis_url.c
 *		Takes a Redis URL apart.
 *
 * Called by the check hook of outbox.redis_url, which must refuse a bad one,
 * and by the link when it connects. Allocates nothing and raises no error: a
 * check hook may not. It must never print the URL: it may hold a password.
 */
#include "postgres.h"

#include <ctype.h>

#include "src/redis_url.h"

#define DEFAULT_PORT	6379
#define MAX_DB			1000000

static bool parse_tcp(const char *rest, RedisUrl *url, const char **reason);
static bool parse_login(const char *from, const char *to, RedisUrl *url, const char **reason);
static bool parse_host(const char *from, const char *to, RedisUrl *url, const char **reason);
static bool parse_number(const char *from, const char *to, int max, int *number);
static bool copy_decoded(const char *from, const char *to, char *part, size_t size);
static int	hex_digit(char c);

/*
 * Parses "redis://[[user]:password@]host[:port][/db]" or "unix:///path".
 *
 * Returns false, with a sentence in *reason that names the part but not its
 * value, if the text is no such URL. Parts are percent-decoded.
 */
bool
redis_url_parse(const char *text, RedisUrl *url, const char **reason)
{
	*reason = NULL;
	memset(url, 0, sizeof(*url));
	url->port = DEFAULT_PORT;

	if (strncmp(text, "redis://", 8) == 0)
		return parse_tcp(text + 8, url, reason);

	if (strncmp(text, "unix://", 7) == 0)
	{
		if (text[7] != '/')
			*reason = "The path of a unix socket must be absolute.";
		else if (!copy_decoded(text + 7, text + strlen(text), url->path, sizeof(url->path)))
			*reason = "The path of the unix socket is too long or has a bad percent escape.";
		return *reason == NULL;
	}

	*reason = "The scheme must be \"redis://\" or \"unix://\".";
	return false;
}

static bool
parse_tcp(const char *rest, RedisUrl *url, const char **reason)
{
	const char *slash = strchr(rest, '/');
	const char *end = slash ? slash : rest + strlen(rest);
	const char *at = NULL;

	for (const char *c = rest; c < end; c++)
	{
		if (*c == '@')
			at = c;
	}

	if (at && !parse_login(rest, at, url, reason))
		return false;
	if (!parse_host(at ? at + 1 : rest, end, url, reason))
		return false;
	if (slash && slash[1] != '\0' &&
		!parse_number(slash + 1, slash + strlen(slash), MAX_DB, &url->db))
	{
		*reason = "The database must be a number.";
		return false;
	}
	return true;
}

/* "user", "user:password" or ":password" */
static bool
parse_login(const char *from, const char *to, RedisUrl *url, const char **reason)
{
	const char *colon = memchr(from, ':', to - from);

	if (!copy_decoded(from, colon ? colon : to, url->user, sizeof(url->user)))
		*reason = "The user is too long or has a bad percent escape.";
	else if (colon && !copy_decoded(colon + 1, to, url->password, sizeof(url->password)))
		*reason = "The password is too long or has a bad percent escape.";
	return *reason == NULL;
}

/* "host", "host:port" or "[v6]:port" */
static bool
parse_host(const char *from, const char *to, RedisUrl *url, const char **reason)
{
	const char *name_end;
	const char *colon;

	if (from < to && *from == '[')
	{
		from++;
		name_end = memchr(from, ']', to - from);
		colon = name_end ? name_end + 1 : NULL;
	}
	else
	{
		colon = memchr(from, ':', to - from);
		name_end = colon ? colon : to;
		if (colon == NULL)
			colon = to;
	}

	if (name_end == NULL || name_end == from ||
		!copy_decoded(from, name_end, url->host, sizeof(url->host)))
		*reason = "The host is missing, too long or malformed.";
	else if (colon < to &&
			 (*colon != ':' || !parse_number(colon + 1, to, 65535, &url->port) || url->port == 0))
		*reason = "The port must be a number from 1 to 65535.";
	return *reason == NULL;
}

static bool
parse_number(const char *from, const char *to, int max, int *number)
{
	*number = 0;
	if (from == to)
		return false;
	for (; from < to; from++)
	{
		if (!isdigit((unsigned char) *from))
			return false;
		*number = *number * 10 + (*from - '0');
		if (*number > max)
			return false;
	}
	return true;
}

static bool
copy_decoded(const char *from, const char *to, char *part, size_t size)
{
	size_t		length = 0;

	while (from < to)
	{
		int			byte = (unsigned char) *from++;

		if (byte == '%')
		{
			if (to - from < 2 || hex_digit(from[0]) < 0 || hex_digit(from[1]) < 0)
				return false;
			byte = hex_digit(from[0]) * 16 + hex_digit(from[1]);
			from += 2;
		}
		if (byte == 0 || length + 1 >= size)
			return false;
		part[length++] = (char) byte;
	}
	part[length] = '\0';
	return true;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
