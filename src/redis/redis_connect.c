/*
 * redis_connect.c
 *		Connects to the Redis that outbox.redis_url or another URL names, and
 *		logs in.
 *
 * Called by redis_cluster.c for each new connection to Redis. If the URL names
 * sentinels they are asked one after the other for the master. Because a sentinel may
 * be out of date, the server found must itself say that it is the master. Each sentinel
 * gets its share of the time, so one that does not answer does not use up all of it.
 *
 * Nodes of a cluster are chosen by redis_cluster.c, and connected to one by one with
 * the login of its URL.
 *
 * It sets how errors of the link name the server; that never includes a
 * password. What it has known of passwords it overwrites when it returns.
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/foreign_text.h"
#include "src/redis/redis_connect.h"
#include "src/redis/redis_url.h"
#include "src/settings.h"

static bool read_login(RedisLink *link, const char *text, RedisUrl *url, char *password_file);
static bool connect_as(RedisLink *link, RedisUrl *url, const char *password_file, TimestampTz deadline);
static bool connect_to_node(RedisLink *link, const RedisUrl *url, const RedisNode *node, const char *password_file,
							TimestampTz deadline);
static void name_server(RedisLink *link, const RedisUrl *url, const RedisNode *node, const char *password_file);
static bool connect_to_master(RedisLink *link, RedisUrl *url, const char *password_file, TimestampTz deadline);
static bool ask_sentinel(RedisLink *link, const RedisUrl *url, const RedisNode *sentinel,
						 TimestampTz deadline, RedisNode *master);
static bool read_address(const redisReply *reply, RedisNode *node);
static bool expect_master(RedisLink *link);
static bool log_in(RedisLink *link, const RedisUrl *url);
static bool authenticate(RedisLink *link, const char *user, const char *password);
static bool read_password_files(RedisLink *link, RedisUrl *url);
static bool read_password(RedisLink *link, const char *setting, const char *file, char *password, size_t size);
static bool expect_ok(RedisLink *link, redisReply *reply, const char *what);

/*
 * Connects to the Redis that a URL names, which is no cluster, and logs in; NULL = as
 * the settings say. Returns false if that fails; the link has the error.
 */
bool
redis_connect_to(RedisLink *link, const char *text)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);
	RedisUrl	url;
	char		password_file[MAXPGPATH];
	bool		connected;

	connected = read_login(link, text, &url, password_file) && connect_as(link, &url, password_file, deadline);
	explicit_bzero(&url, sizeof(url));
	return connected;
}

/*
 * The same to one node of the cluster that the URL names, within a deadline. `hash` is
 * that of the URL by which the node was found. Fails if the settings have another one by
 * now: its login is none of this node's business.
 */
bool
redis_connect_to_node(RedisLink *link, const char *text, uint64 hash, const RedisNode *node, TimestampTz deadline)
{
	RedisUrl	url;
	char		password_file[MAXPGPATH];
	bool		connected;

	connected = read_login(link, text, &url, password_file);
	if (connected && redis_connect_hash(text) != hash)
	{
		redis_link_fail(link, "outbox.redis_url was changed while its nodes were tried");
		connected = false;
	}
	connected = connected && connect_to_node(link, &url, node, password_file, deadline);
	explicit_bzero(&url, sizeof(url));
	return connected;
}

/* Returns the hash of a URL; NULL = that of the settings. */
uint64
redis_connect_hash(const char *text)
{
	if (text == NULL)
		text = outbox_redis_url;
	return hash_bytes_extended((const unsigned char *) text, strlen(text), 0);
}

/*
 * Closes the link and reads how to connect it: a URL, or if it is NULL the settings,
 * which may name files with passwords. The name of that for Redis, or nothing, is copied
 * to password_file, which has MAXPGPATH bytes, for errors: the settings may be read again
 * while a sentinel is waited for. Returns false if that fails; the link has the error.
 */
static bool
read_login(RedisLink *link, const char *text, RedisUrl *url, char *password_file)
{
	const char *reason;

	redis_link_close(link);
	redis_link_name(link, "%s", "");
	strlcpy(password_file, text ? "" : outbox_redis_password_file, MAXPGPATH);
	if (!redis_url_parse(text ? text : outbox_redis_url, url, &reason))
	{
		redis_link_fail(link, text ? "the URL is invalid" : "outbox.redis_url is invalid");
		return false;
	}
	if (text)
		return true;
	name_server(link, url, &url->nodes[0], password_file);
	return read_password_files(link, url);
}

/* Connects and logs in; password_file is for errors only, which name it unless it is empty. */
static bool
connect_as(RedisLink *link, RedisUrl *url, const char *password_file, TimestampTz deadline)
{
	if (url->master[0] != '\0')
		return connect_to_master(link, url, password_file, deadline);
	if (url->path[0] == '\0')
		return connect_to_node(link, url, &url->nodes[0], password_file, deadline);
	name_server(link, url, &url->nodes[0], password_file);
	return redis_link_dial_path(link, url->path, deadline) && log_in(link, url);
}

/* Connects to a server, and logs in. */
static bool
connect_to_node(RedisLink *link, const RedisUrl *url, const RedisNode *node, const char *password_file,
				TimestampTz deadline)
{
	name_server(link, url, node, password_file);
	return redis_link_dial(link, node->host, node->port, url->tls, deadline) && log_in(link, url);
}

/* Names the server for errors by everything that distinguishes it, and the login, from others. */
static void
name_server(RedisLink *link, const RedisUrl *url, const RedisNode *node, const char *password_file)
{
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
	if (password_file[0] != '\0')
		snprintf(details + length, sizeof(details) - length, ", password file \"%s\"", password_file);
	redis_link_name(link, "Redis at %s%s", place, details);
}

/* Asks the sentinels for the master until one answers; the error is that of the last one asked. */
static bool
connect_to_master(RedisLink *link, RedisUrl *url, const char *password_file, TimestampTz deadline)
{
	for (int i = 0; i < url->nnodes; i++)
	{
		TimestampTz share = clock_share(deadline, url->nnodes - i);
		RedisNode	master;

		/* Waiting for the master may have taken all of the time. */
		if (i > 0 && clock_now() >= deadline)
			break;
		if (!ask_sentinel(link, url, &url->nodes[i], share, &master))
			continue;
		if (connect_to_node(link, url, &master, password_file, share) && expect_master(link))
			return true;
	}
	return false;
}

/* Asks a sentinel which server is the master. Returns false if it does not say; the link has the error. */
static bool
ask_sentinel(RedisLink *link, const RedisUrl *url, const RedisNode *sentinel,
			 TimestampTz deadline, RedisNode *master)
{
	redisReply *reply;
	bool		known;

	redis_link_name(link, strchr(sentinel->host, ':') ? "sentinel at [%s]:%d, master \"%s\"" : "sentinel at %s:%d, master \"%s\"",
					sentinel->host, sentinel->port, url->master);
	if (!redis_link_dial(link, sentinel->host, sentinel->port, url->tls, deadline))
		return false;
	redis_link_limit(link, deadline);
	if (url->sentinel_password[0] != '\0' && !authenticate(link, url->sentinel_user, url->sentinel_password))
		return false;
	reply = redis_link_call(link, 3, (const char *[]) {
		"SENTINEL", "get-master-addr-by-name", url->master
	});
	if (reply == NULL)
		return false;
	known = read_address(reply, master);
	if (!known && reply->type == REDIS_REPLY_NIL)
		redis_link_fail(link, "a sentinel does not know the master: no such name");
	else if (!known)
		redis_link_refused(link, reply, "a sentinel does not know the master");
	freeReplyObject(reply);
	return known;
}

/* Reads the address that a sentinel returns. Returns false if it is not one. */
static bool
read_address(const redisReply *reply, RedisNode *node)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_STRING ||
		reply->element[0]->len >= sizeof(node->host))
		return false;
	for (size_t i = 0; i < reply->element[0]->len; i++)
	{
		if (!isgraph((unsigned char) reply->element[0]->str[i]) || IS_HIGHBIT_SET(reply->element[0]->str[i]))
			return false;
	}
	strlcpy(node->host, reply->element[0]->str, sizeof(node->host));
	node->port = atoi(reply->element[1]->str);
	return node->host[0] != '\0' && node->port > 0 && node->port <= 65535;
}

/* Checks that the server is a master: a sentinel may name one that no longer is. */
static bool
expect_master(RedisLink *link)
{
	redisReply *reply = redis_link_call(link, 1, (const char *[]) {"ROLE"});
	bool		is_master = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
		reply->element[0]->type == REDIS_REPLY_STRING && strcmp(reply->element[0]->str, "master") == 0;

	if (reply && !is_master)
		redis_link_fail(link, "the server that a sentinel named is not the master");
	if (reply)
		freeReplyObject(reply);
	return is_master;
}

/* Logs in, and selects the database, as far as the URL says so. */
static bool
log_in(RedisLink *link, const RedisUrl *url)
{
	char		db[16];
	const char *select[] = {"SELECT", db};

	if (url->password[0] != '\0' && !authenticate(link, url->user, url->password))
		return false;
	if (url->db == 0)
		return true;
	snprintf(db, sizeof(db), "%d", url->db);
	return expect_ok(link, redis_link_call(link, 2, select), "could not select the database");
}

/* Logs in; without a user as the default one, in the way that every version understands. */
static bool
authenticate(RedisLink *link, const char *user, const char *password)
{
	const char *named[] = {"AUTH", user, password};
	const char *unnamed[] = {"AUTH", password};
	bool		is_named = user[0] != '\0';
	redisReply *reply = redis_link_call(link, is_named ? 3 : 2, is_named ? named : unnamed);

	redis_link_wipe(link);
	return expect_ok(link, reply, "could not log in");
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

/* Frees a reply. Returns false if it is not a status; the link then has the error, which begins with `what`. */
static bool
expect_ok(RedisLink *link, redisReply *reply, const char *what)
{
	bool		ok = reply && reply->type == REDIS_REPLY_STATUS;

	if (reply && !ok)
		redis_link_refused(link, reply, what);
	if (reply)
		freeReplyObject(reply);
	return ok;
}
