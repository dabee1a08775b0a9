/*
 * redis_credentials.c
 *		Where a Redis is, and how to log in there: a URL, and files with passwords.
 *
 * Called by redis_cluster.c and redis_connect.c, once for each attempt to connect: so new
 * passwords in files need no reload, and an attempt has one reading of the settings, which
 * may change while it waits. Errors are those of the link; they contain no password.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "storage/fd.h"

#include "src/foreign_text.h"
#include "src/redis/redis_credentials.h"
#include "src/settings.h"

static bool read_password_files(RedisLink *link, RedisUrl *url);
static bool read_password(RedisLink *link, const char *setting, const char *file, char *password, size_t size);

/*
 * Reads a URL, or if it is NULL the settings, which may name files with passwords. Closes
 * the link that is to be connected. Returns false if that fails; the link has the error.
 */
bool
redis_credentials_read(RedisCredentials *credentials, const char *text, RedisLink *link)
{
	const char *reason;

	redis_link_close(link);
	redis_link_name(link, "%s", "");
	credentials->hash = redis_credentials_hash(text);
	strlcpy(credentials->password_file, text ? "" : outbox_redis_password_file, MAXPGPATH);
	if (!redis_url_parse(text ? text : outbox_redis_url, &credentials->url, &reason))
	{
		redis_credentials_wipe(credentials);
		redis_link_fail(link, text ? "the URL is invalid" : "outbox.redis_url is invalid");
		return false;
	}
	if (text)
		return true;
	redis_credentials_name(credentials, &credentials->url.nodes[0], link);
	return read_password_files(link, &credentials->url);
}

/* Overwrites the passwords. */
void
redis_credentials_wipe(RedisCredentials *credentials)
{
	explicit_bzero(&credentials->url, sizeof(credentials->url));
}

/* Names a server for errors of the link by everything that distinguishes it, and the credentials, from others. */
void
redis_credentials_name(const RedisCredentials *credentials, const RedisNode *node, RedisLink *link)
{
	const RedisUrl *url = &credentials->url;
	char		place[sizeof(node->host) + 16];
	char		details[NAMEDATALEN + MAXPGPATH] = "";
	size_t		length = 0;

	if (url->path[0] != '\0')
		snprintf(place, sizeof(place), "\"%s\"", url->path);
	else
		snprintf(place, sizeof(place), strchr(node->host, ':') ? "[%s]:%d" : "%s:%d", node->host, node->port);
	if (url->db != 0)
		length += snprintf(details + length, sizeof(details) - length, ", database %d", url->db);
	if (url->user[0] != '\0')
		length += snprintf(details + length, sizeof(details) - length, ", user \"%.64s\"", url->user);
	if (url->tls)
		length += snprintf(details + length, sizeof(details) - length, ", TLS");
	if (credentials->password_file[0] != '\0')
		snprintf(details + length, sizeof(details) - length, ", password file \"%s\"", credentials->password_file);
	redis_link_name(link, "Redis at %s%s", place, details);
}

/* Returns the hash of a URL; NULL = that of the settings. */
uint64
redis_credentials_hash(const char *text)
{
	if (text == NULL)
		text = outbox_redis_url;
	return hash_bytes_extended((const unsigned char *) text, strlen(text), 0);
}

/* Reads the passwords that are in files. Returns false if that fails; the link has the error. */
static bool
read_password_files(RedisLink *link, RedisUrl *url)
{
	if (!read_password(link, "outbox.redis_password_file", outbox_redis_password_file,
					   url->password, sizeof(url->password)))
		return false;
	return url->master[0] == '\0' ||
		read_password(link, "outbox.redis_sentinel_password_file", outbox_redis_sentinel_password_file,
					  url->sentinel_password, sizeof(url->sentinel_password));
}

/*
 * Reads a password, if its setting names a file: the first line of it. A pipe is not
 * waited for. Returns false if that fails; the link has the error.
 */
static bool
read_password(RedisLink *link, const char *setting, const char *file, char *password, size_t size)
{
	int			opened;
	int			failure;
	ssize_t		n;

	if (file[0] == '\0')
		return true;
	opened = OpenTransientFile(file, O_RDONLY | O_NONBLOCK | PG_BINARY);
	n = opened < 0 ? -1 : read(opened, password, size - 1);
	failure = errno;
	if (opened >= 0)
		CloseTransientFile(opened);
	if (n < 0)
		redis_link_fail(link, "could not open the file of %s: %s", setting, foreign_text_error(failure));
	else if (n == 0)
		redis_link_fail(link, "the file of %s is empty", setting);
	else
	{
		password[n] = '\0';
		password[strcspn(password, "\r\n")] = '\0';
	}
	return n > 0;
}
