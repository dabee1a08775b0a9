/*
 * redis_connect.c
 *		Connects to a Redis, and logs in.
 *
 * Called by redis_cluster.c and redis_seeds.c for each new connection to Redis. If the
 * URL (redis_credentials.c) names sentinels, they are asked one after the other for the
 * master. Because a sentinel may be out of date, the server found must itself say that it
 * is the master. Each sentinel gets its share of the time, so one that does not answer
 * does not use up all of it.
 *
 * It sets how errors of the link name the server; that never includes a
 * password.
 */
#include "postgres.h"

#include <ctype.h>

#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/redis/redis_connect.h"
#include "src/settings.h"

static bool connect_to_master(RedisLink *link, const RedisCredentials *credentials, TimestampTz deadline);
static bool connect_if_master(RedisLink *link, const RedisCredentials *credentials, const RedisNode *node, TimestampTz deadline);
static bool ask_sentinel(RedisLink *link, const RedisUrl *url, const RedisNode *sentinel,
						 TimestampTz deadline, RedisNode *master);
static bool read_address(const redisReply *reply, RedisNode *node);
static bool expect_master(RedisLink *link);
static bool log_in(RedisLink *link, const RedisUrl *url);
static bool authenticate(RedisLink *link, const char *user, const char *password);
static bool expect_ok(RedisLink *link, redisReply *reply, const char *what);

/*
 * Connects to a Redis that is no cluster, and logs in. Returns false if that fails; the
 * link has the error.
 */
bool
redis_connect_to(RedisLink *link, const RedisCredentials *credentials)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);
	const RedisUrl *url = &credentials->url;

	if (url->master[0] != '\0')
		return connect_to_master(link, credentials, deadline);
	redis_credentials_name(credentials, &url->nodes[0], link);
	if (url->path[0] == '\0')
		return redis_link_dial(link, url->nodes[0].host, url->nodes[0].port, url->tls, deadline) && log_in(link, url);
	return redis_link_dial_path(link, url->path, deadline) && log_in(link, url);
}

/*
 * Connects to one of several servers, such as a node of a cluster, and logs in, all of it
 * within a deadline: one that accepts connections and says nothing leaves time for the others.
 */
bool
redis_connect_to_node(RedisLink *link, const RedisCredentials *credentials, const RedisNode *node, TimestampTz deadline)
{
	bool		connected;

	redis_credentials_name(credentials, node, link);
	if (!redis_link_dial(link, node->host, node->port, credentials->url.tls, deadline))
		return false;
	redis_link_limit(link, deadline);
	connected = log_in(link, &credentials->url);
	redis_link_limit(link, 0);
	return connected;
}

/*
 * The same to a node that a cluster has named, with the credentials of a URL (NULL = of the
 * settings) that is read again. `hash` is that of the URL by which the node was found.
 * Fails if the settings have another one by now: its credentials are not for this node.
 */
bool
redis_connect_again(RedisLink *link, const char *text, uint64 hash, const RedisNode *node, TimestampTz deadline)
{
	RedisCredentials credentials;
	bool		connected = redis_credentials_read(&credentials, text, link);

	if (connected && credentials.hash != hash)
	{
		redis_link_fail(link, "outbox.redis_url was changed while its nodes were tried");
		connected = false;
	}
	connected = connected && redis_connect_to_node(link, &credentials, node, deadline);
	redis_credentials_wipe(&credentials);
	return connected;
}

/* Asks the sentinels for the master until one answers; the error is that of the last one asked. */
static bool
connect_to_master(RedisLink *link, const RedisCredentials *credentials, TimestampTz deadline)
{
	const RedisUrl *url = &credentials->url;

	for (int i = 0; i < url->nnodes; i++)
	{
		TimestampTz share = clock_share(deadline, url->nnodes - i);
		RedisNode	master;

		/* Waiting for the others may have taken all of the time. */
		if (i > 0 && clock_now() >= deadline)
			break;

		/*
		 * All sentinels usually name the same master, and it may be distant:
		 * half of what is left is for it.
		 */
		if (ask_sentinel(link, url, &url->nodes[i], share, &master) &&
			connect_if_master(link, credentials, &master, clock_share(deadline, Min(url->nnodes - i, 2))))
			return true;
	}
	return false;
}

/* Connects to the server that a sentinel named, within a deadline. Returns false if it is not the master. */
static bool
connect_if_master(RedisLink *link, const RedisCredentials *credentials, const RedisNode *node, TimestampTz deadline)
{
	bool		is_master;

	if (!redis_connect_to_node(link, credentials, node, deadline))
		return false;
	redis_link_limit(link, deadline);
	is_master = expect_master(link);
	redis_link_limit(link, 0);
	return is_master;
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
	if (!authenticate(link, url->sentinel_user, url->sentinel_password))
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
		redis_link_fail_with_reply(link, reply, "a sentinel does not know the master");
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

	if (!authenticate(link, url->user, url->password))
		return false;
	if (url->db == 0)
		return true;
	snprintf(db, sizeof(db), "%d", url->db);
	return expect_ok(link, redis_link_call(link, 2, select), "could not select the database");
}

/*
 * Logs in, if there is a user or a password; without a user as the default one, in the way
 * that every version understands. A user may have no password: then any is right, also an
 * empty one. Redis takes whoever does not log in for the default user.
 */
static bool
authenticate(RedisLink *link, const char *user, const char *password)
{
	const char *named[] = {"AUTH", user, password};
	const char *unnamed[] = {"AUTH", password};
	bool		is_named = user[0] != '\0';
	redisReply *reply;

	if (!is_named && password[0] == '\0')
		return true;
	reply = redis_link_call(link, is_named ? 3 : 2, is_named ? named : unnamed);
	redis_link_wipe(link);
	return expect_ok(link, reply, "could not log in");
}

/* Frees a reply. Returns false if it is not a status; the link then has the error, which begins with `what`. */
static bool
expect_ok(RedisLink *link, redisReply *reply, const char *what)
{
	bool		ok = reply && reply->type == REDIS_REPLY_STATUS;

	if (reply && !ok)
		redis_link_fail_with_reply(link, reply, what);
	if (reply)
		freeReplyObject(reply);
	return ok;
}
