/*
 * redis_connect.c
 *		Connects to the Redis that outbox.redis_url or another URL names, and
 *		logs in.
 *
 * Called by whoever needs Redis, for each new connection. If the URL names
 * sentinels they are asked, one after the other, who is master; and since what
 * a sentinel says may be old, the one found must say so itself.
 */
#include "postgres.h"

#include "storage/fd.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/redis_connect.h"
#include "src/settings.h"

static bool connect_to_master(RedisLink *link, RedisUrl *url, TimestampTz deadline);
static bool ask_sentinel(RedisLink *link, const RedisUrl *url, RedisNode *master);
static bool expect_master(RedisLink *link);
static bool log_in(RedisLink *link, RedisUrl *url);
static bool read_password(RedisLink *link, char *password, size_t size);
static bool expect_ok(RedisLink *link, redisReply *reply, const char *what);

/* Connects and logs in as the settings say; false with the link's error. */
bool
redis_connect(RedisLink *link)
{
	RedisUrl	url;
	const char *reason;

	redis_link_close(link);
	if (!redis_url_parse(outbox_redis_url, &url, &reason))
	{
		redis_link_fail(link, "outbox.redis_url is invalid");
		return false;
	}
	if (outbox_redis_password_file[0] != '\0' &&
		!read_password(link, url.password, sizeof(url.password)))
		return false;
	return redis_connect_to(link, &url);
}

/* Connects and logs in as a URL says; false with the link's error. */
bool
redis_connect_to(RedisLink *link, RedisUrl *url)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(clock_now(), outbox_connect_timeout);

	if (url->path[0] != '\0')
		return redis_link_dial_path(link, url->path, deadline) && log_in(link, url);
	if (url->master[0] != '\0')
		return connect_to_master(link, url, deadline);
	return redis_link_dial(link, url->nodes[0].host, url->nodes[0].port, deadline) && log_in(link, url);
}

/* Any sentinel will do; the error is that of the last one that was asked. */
static bool
connect_to_master(RedisLink *link, RedisUrl *url, TimestampTz deadline)
{
	for (int i = 0; i < url->nnodes; i++)
	{
		RedisNode	master;

		if (redis_link_dial(link, url->nodes[i].host, url->nodes[i].port, deadline) &&
			ask_sentinel(link, url, &master) &&
			redis_link_dial(link, master.host, master.port, deadline) &&
			log_in(link, url) && expect_master(link))
			return true;
	}
	return false;
}

static bool
ask_sentinel(RedisLink *link, const RedisUrl *url, RedisNode *master)
{
	redisReply *reply = redis_link_call(link, 3, (const char *[]) {
		"SENTINEL", "get-master-addr-by-name", url->master
	});
	bool		known = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		reply->element[0]->type == REDIS_REPLY_STRING && reply->element[1]->type == REDIS_REPLY_STRING;

	if (known)
	{
		strlcpy(master->host, reply->element[0]->str, sizeof(master->host));
		master->port = atoi(reply->element[1]->str);
	}
	else if (reply)
		redis_link_fail(link, "a sentinel does not know the master: %s",
						reply->type == REDIS_REPLY_ERROR ? reply->str : "no such name");
	if (reply)
		freeReplyObject(reply);
	return known;
}

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

static bool
log_in(RedisLink *link, RedisUrl *url)
{
	char		db[16];

	if (url->password[0] != '\0')
	{
		const char *auth[] = {"AUTH", url->user, url->password};
		const char *legacy[] = {"AUTH", url->password};
		bool		named = url->user[0] != '\0';

		if (!expect_ok(link, redis_link_call(link, named ? 3 : 2, named ? auth : legacy), "log in"))
			return false;
	}
	if (url->db != 0)
	{
		const char *select[] = {"SELECT", db};

		snprintf(db, sizeof(db), "%d", url->db);
		if (!expect_ok(link, redis_link_call(link, 2, select), "select the database"))
			return false;
	}
	return true;
}

/* The first line of the file. */
static bool
read_password(RedisLink *link, char *password, size_t size)
{
	FILE	   *file = AllocateFile(outbox_redis_password_file, "r");
	bool		read;

	if (file == NULL)
	{
		redis_link_fail(link, "could not open the file of outbox.redis_password_file: %s", strerror(errno));
		return false;
	}
	read = fgets(password, size, file) != NULL;
	FreeFile(file);
	if (!read)
	{
		redis_link_fail(link, "the file of outbox.redis_password_file is empty");
		return false;
	}
	password[strcspn(password, "\r\n")] = '\0';
	return true;
}

static bool
expect_ok(RedisLink *link, redisReply *reply, const char *what)
{
	bool		ok = reply && reply->type == REDIS_REPLY_STATUS;

	if (reply && !ok)
		redis_link_fail(link, "could not %s: %s", what,
						reply->type == REDIS_REPLY_ERROR ? reply->str : "unexpected reply");
	if (reply)
		freeReplyObject(reply);
	return ok;
}
