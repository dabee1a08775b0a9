/*
 * redis_url.c
 *		Parses a Redis URL.
 *
 * Called by the check hook of outbox.redis_url, and when a link is connected.
 * It allocates nothing and raises no error, because a check hook must not. It
 * must never print the URL, which may contain a password.
 */
#include "postgres.h"

#include <ctype.h>

#include "src/redis/redis_url.h"
#include "src/redis/tls.h"

#define DEFAULT_PORT			6379
#define DEFAULT_SENTINEL_PORT	26379
#define MAX_DB					1000000

/* The schemes, each with the parser of what follows. */
static bool parse_server(const char *rest, RedisUrl *url, const char **reason);
static bool parse_sentinels(const char *rest, RedisUrl *url, const char **reason);
static bool parse_cluster(const char *rest, RedisUrl *url, const char **reason);
static bool parse_path(const char *rest, RedisUrl *url, const char **reason);

typedef struct Scheme
{
	const char *prefix;
	bool		tls;
	bool		(*parse) (const char *rest, RedisUrl *url, const char **reason);
} Scheme;

static const Scheme schemes[] = {
	{"redis://", false, parse_server},
	{"rediss://", true, parse_server},
	{"redis+sentinel://", false, parse_sentinels},
	{"rediss+sentinel://", true, parse_sentinels},
	{"redis+cluster://", false, parse_cluster},
	{"rediss+cluster://", true, parse_cluster},
	{"unix://", false, parse_path}
};

static const Scheme *find_scheme(const char *text);
static bool parse_db(const char *from, const char *to, RedisUrl *url, const char **reason);
static bool parse_query(const char *query, RedisUrl *url, const char **reason);
static void parse_value(const char *from, const char *to, char *value, size_t size, const char **reason);
static bool has_at_behind_slash(const char *rest);
static bool starts_with(const char *text, const char *prefix);
static bool parse_login(const char **rest, const char *end, RedisUrl *url, const char **reason);
static bool parse_nodes(const char *from, const char *end, int default_port, RedisUrl *url, const char **reason);
static bool parse_node(const char *from, const char *to, int default_port, RedisNode *node, const char **reason);
static bool parse_number(const char *from, const char *to, int max, int *number);
static bool copy_decoded(const char *from, const char *to, char *part, size_t size);
static int	hex_digit(char c);

/*
 * Parses "redis://[[user][:password]@]host[:port][/db]", "unix:///path",
 * "redis+cluster://[[user][:password]@]host[:port][,host[:port]...]" or
 * "redis+sentinel://[[user][:password]@]host[:port][,host[:port]...]/master[/db]",
 * the latter perhaps with "?sentinel_user=user&sentinel_password=password". With
 * "rediss" instead of "redis" there is TLS.
 *
 * Returns false if the text is not such a URL; *reason is then a sentence that
 * names the wrong part but not its value. Parts are percent-decoded.
 */
bool
redis_url_parse(const char *text, RedisUrl *url, const char **reason)
{
	const Scheme *scheme = find_scheme(text);
	const char *rest = scheme ? text + strlen(scheme->prefix) : text;

	*reason = NULL;
	memset(url, 0, sizeof(*url));
	if (scheme == NULL)
		*reason = "The scheme must be \"redis://\", \"rediss://\", \"redis+sentinel://\", \"rediss+sentinel://\", \"redis+cluster://\", \"rediss+cluster://\" or \"unix://\".";
	else if (scheme->tls && tls_why_none() != NULL)
		*reason = tls_why_none();
	else if (scheme->parse != parse_path && has_at_behind_slash(rest))
		*reason = "In a password \"/\" must be written as \"%2F\", and after the host \"@\" must be written as \"%40\".";
	if (*reason != NULL)
		return false;
	url->tls = scheme->tls;
	return scheme->parse(rest, url, reason);
}

/* Check whether two URLs, which must be valid, are the same but for passwords. */
bool
redis_url_differs_in_password(const char *one, const char *other)
{
	RedisUrl	urls[2];
	const char *reason;

	if (!redis_url_parse(one, &urls[0], &reason) || !redis_url_parse(other, &urls[1], &reason))
		return false;
	for (int i = 0; i < lengthof(urls); i++)
	{
		memset(urls[i].password, 0, sizeof(urls[i].password));
		memset(urls[i].sentinel_password, 0, sizeof(urls[i].sentinel_password));
	}
	return memcmp(&urls[0], &urls[1], sizeof(RedisUrl)) == 0;
}

/* Check whether a URL is one of a Redis, right or wrong. */
bool
redis_url_has_scheme(const char *text)
{
	return find_scheme(text) != NULL;
}

/* Returns the scheme of a URL, or NULL. */
static const Scheme *
find_scheme(const char *text)
{
	for (int i = 0; i < lengthof(schemes); i++)
	{
		if (starts_with(text, schemes[i].prefix))
			return &schemes[i];
	}
	return NULL;
}

/* Check whether what follows the scheme may have a password with a slash in it, where the host would end. */
static bool
has_at_behind_slash(const char *rest)
{
	const char *slash = strchr(rest, '/');

	return slash && memchr(slash, '@', strcspn(slash, "?"));
}

static bool
starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Parses what follows "redis://" or "rediss://". */
static bool
parse_server(const char *rest, RedisUrl *url, const char **reason)
{
	const char *end = rest + strcspn(rest, "/");

	if (!parse_login(&rest, end, url, reason) ||
		!parse_node(rest, end, DEFAULT_PORT, &url->nodes[0], reason))
		return false;
	url->nnodes = 1;
	return parse_db(end, end + strlen(end), url, reason);
}

/* Parses what follows "redis+sentinel://" or "rediss+sentinel://". */
static bool
parse_sentinels(const char *rest, RedisUrl *url, const char **reason)
{
	const char *end = rest + strcspn(rest, "/");
	const char *name = *end == '/' ? end + 1 : end;
	const char *name_end = name + strcspn(name, "/?");
	const char *query = name + strcspn(name, "?");

	if (!parse_login(&rest, end, url, reason))
		return false;
	if (!parse_nodes(rest, end, DEFAULT_SENTINEL_PORT, url, reason))
		return false;
	if (name == name_end || !copy_decoded(name, name_end, url->master, sizeof(url->master)))
	{
		*reason = "The name of the master is missing, too long or invalid.";
		return false;
	}
	return parse_db(name_end, query, url, reason) && parse_query(query, url, reason);
}

/* Parses what follows "redis+cluster://" or "rediss+cluster://". A cluster has one database. */
static bool
parse_cluster(const char *rest, RedisUrl *url, const char **reason)
{
	const char *end = rest + strcspn(rest, "/");

	if (!parse_login(&rest, end, url, reason) || !parse_nodes(rest, end, DEFAULT_PORT, url, reason) ||
		!parse_db(end, end + strlen(end), url, reason))
		return false;
	url->cluster = true;
	if (url->db != 0)
		*reason = "A Redis Cluster has only database 0.";
	return *reason == NULL;
}

/* Parses what follows "unix://". Clients of Redis let "?db=1" follow: it must not be taken for a part of the path. */
static bool
parse_path(const char *rest, RedisUrl *url, const char **reason)
{
	if (rest[0] != '/')
		*reason = "The path of the Unix-domain socket must be absolute.";
	else if (strchr(rest, '?'))
		*reason = "A URL with a Unix-domain socket has no parameters, and its database is 0; in the path \"?\" must be written as \"%3F\".";
	else if (!copy_decoded(rest, rest + strlen(rest), url->path, sizeof(url->path)))
		*reason = "The path of the Unix-domain socket is too long or has an invalid percent escape.";
	return *reason == NULL;
}

/* Parses "/number", "/" or nothing. */
static bool
parse_db(const char *from, const char *to, RedisUrl *url, const char **reason)
{
	if (to - from > 1 && !parse_number(from + 1, to, MAX_DB, &url->db))
		*reason = "The database must be a number.";
	return *reason == NULL;
}

/* Parses "?sentinel_user=user&sentinel_password=password", one of the two, or nothing. */
static bool
parse_query(const char *query, RedisUrl *url, const char **reason)
{
	while (*query != '\0' && *reason == NULL)
	{
		const char *from = query + 1;
		const char *to = from + strcspn(from, "&");

		if (starts_with(from, "sentinel_user="))
			parse_value(from, to, url->sentinel_user, sizeof(url->sentinel_user), reason);
		else if (starts_with(from, "sentinel_password="))
			parse_value(from, to, url->sentinel_password, sizeof(url->sentinel_password), reason);
		else
			*reason = "After \"?\" only \"sentinel_user\" and \"sentinel_password\" can be given.";
		query = to;
	}
	return *reason == NULL;
}

/* Copies the value of "name=value". */
static void
parse_value(const char *from, const char *to, char *value, size_t size, const char **reason)
{
	from = strchr(from, '=') + 1;
	if (!copy_decoded(from, to, value, size))
		*reason = "The user or password for the sentinels is too long or has an invalid percent escape.";
}

/* Parses "user@", "user:password@" or ":password@" if there is one, and advances *rest. */
static bool
parse_login(const char **rest, const char *end, RedisUrl *url, const char **reason)
{
	const char *from = *rest;
	const char *at = NULL;
	const char *colon;

	for (const char *c = from; c < end; c++)
	{
		if (*c == '@')
			at = c;
	}
	if (at == NULL)
		return true;

	*rest = at + 1;
	colon = memchr(from, ':', at - from);
	if (memchr(from, '@', (colon ? colon : at) - from) || memchr(from, '?', (colon ? colon : at) - from))
		*reason = "In a user \"@\" must be written as \"%40\", and \"?\" as \"%3F\".";
	else if (!copy_decoded(from, colon ? colon : at, url->user, sizeof(url->user)))
		*reason = "The user is too long or has an invalid percent escape.";
	else if (colon && !copy_decoded(colon + 1, at, url->password, sizeof(url->password)))
		*reason = "The password is too long or has an invalid percent escape.";
	return *reason == NULL;
}

/* Parses nodes, separated by commas. */
static bool
parse_nodes(const char *from, const char *end, int default_port, RedisUrl *url, const char **reason)
{
	for (;;)
	{
		const char *comma = memchr(from, ',', end - from);

		if (url->nnodes == MAX_NODES)
		{
			*reason = "There are too many hosts.";
			return false;
		}
		if (!parse_node(from, comma ? comma : end, default_port, &url->nodes[url->nnodes++], reason))
			return false;
		if (comma == NULL)
			return true;
		from = comma + 1;
	}
}

/* Parses "host", "host:port" or "[v6]:port". */
static bool
parse_node(const char *from, const char *to, int default_port, RedisNode *node, const char **reason)
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

	node->port = default_port;
	if (name_end == NULL || name_end == from ||
		!copy_decoded(from, name_end, node->host, sizeof(node->host)))
		*reason = "The host is missing, too long or invalid.";
	else if (colon < to &&
			 (*colon != ':' || !parse_number(colon + 1, to, 65535, &node->port) || node->port == 0))
		*reason = "The port must be a number from 1 to 65535.";
	return *reason == NULL;
}

/* Parses digits only. Returns false if there are none, or the number is greater than max. */
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

/* Percent-decodes a part. Returns false if it is invalid, too long or contains a zero byte. */
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

/* Returns the value of a hexadecimal digit, or -1. */
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
