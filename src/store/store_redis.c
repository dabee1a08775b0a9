/*
 * store_redis.c
 *		A Redis that remembers message ids.
 *
 * Called by store.c. Each id is a key of its own that expires when its
 * retention is over; only the clock of Redis is involved, and a lookup is one
 * EXISTS. (Sets or small hashes that are rotated by time would need less memory,
 * but a lookup would have to ask all of them, and all servers that share the store
 * would have to agree on time and retention; see docs/internals.md.)
 *
 * A replica may lack what was added last: ROLE is sent with each command, so a
 * master that has become a replica is noticed, too. Redis may lose its newest
 * writes when it dies; what survives is a prefix. So each addition ends by
 * writing a watermark, and nothing more is added unless it is still there.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/foreign_text.h"
#include "src/redis/redis_connect.h"
#include "src/redis/redis_url.h"
#include "src/redis/resp.h"
#include "src/store/add.lua.h"
#include "src/store/store_kind.h"

#define KEY_PREFIX	"outbox:dedup:" /* and 16 bytes */
#define WATERMARK_PREFIX	"outbox:watermark:" /* and the instance that wrote
												 * it */

/* Redis does not accept more milliseconds than this; such keys never expire. */
#define MAX_MS		INT64CONST(100000000000000)

static const char *redis_store_url_problem(const char *text);
static void *redis_store_open(const char *text, LinkAttend attend, StoreFailure *failure);
static void redis_store_close(void *connection);
static bool redis_store_contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool redis_store_remove(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool ask_about(RedisLink *link, const char *command, const pg_uuid_t *key, bool *answer, StoreFailure *failure);
static bool redis_store_add(void *connection, const StoreKey *keys, int n, const StoreWatermark *watermark,
							StoreFailure *failure);
static bool redis_store_inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure);

static StringInfo begin_commands(void);
static void put_key(StringInfo out, const pg_uuid_t *key);
static bool send_commands(RedisLink *link, StringInfo out, StoreFailure *failure);
static bool read_role(RedisLink *link, StoreFailure *failure);
static bool read_ok(RedisLink *link, StoreFailure *failure);
static redisReply *receive_reply(RedisLink *link, StoreFailure *failure);
static void fail_with(StoreFailure *failure, const redisReply *reply);
static void fail_with_link(StoreFailure *failure, RedisLink *link);
static bool may_evict(const char *info);

const StoreKind store_redis = {
	.has_scheme = redis_url_has_scheme,
	.url_problem = redis_store_url_problem,
	.connect = redis_store_open,
	.close = redis_store_close,
	.contains = redis_store_contains,
	.remove = redis_store_remove,
	.add = redis_store_add,
	.inspect = redis_store_inspect
};

/* The functions of a StoreKind: each does what store_kind.h says. */
static const char *
redis_store_url_problem(const char *text)
{
	RedisUrl	url;
	const char *problem = NULL;

	if (!redis_url_parse(text, &url, &problem))
		return problem;
	return url.cluster ? "A Redis Cluster cannot be a deduplication store." : NULL;
}

/* Opens a link of its own: each store has its own connection. */
static void *
redis_store_open(const char *text, LinkAttend attend, StoreFailure *failure)
{
	RedisLink  *link = redis_link_create(attend);
	bool		connected = false;

	PG_TRY();
	{
		connected = redis_connect_to(link, text);
		if (!connected)
			fail_with_link(failure, link);
	}
	PG_CATCH();
	{
		redis_link_free(link);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (connected)
		return link;
	redis_link_free(link);
	return NULL;
}

static void
redis_store_close(void *connection)
{
	redis_link_free(connection);
}

static bool
redis_store_contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	return ask_about(connection, "EXISTS", key, found, failure);
}

static bool
redis_store_remove(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure)
{
	return ask_about(connection, "DEL", key, found, failure);
}

/* Sends a command for a key, which answers how many keys it has found. */
static bool
ask_about(RedisLink *link, const char *command, const pg_uuid_t *key, bool *answer, StoreFailure *failure)
{
	StringInfo	out = begin_commands();
	redisReply *reply;
	bool		known;

	resp_put_array(out, 2);
	resp_put_string(out, command);
	put_key(out, key);
	if (!send_commands(link, out, failure) || !read_role(link, failure))
		return false;
	reply = receive_reply(link, failure);
	if (reply == NULL)
		return false;
	known = reply->type == REDIS_REPLY_INTEGER && (reply->integer == 0 || reply->integer == 1);
	if (known)
		*answer = reply->integer == 1;
	else
		fail_with(failure, reply);
	freeReplyObject(reply);
	return known;
}

/*
 * Adds ids by one script, which adds nothing unless the watermark is the
 * expected one: otherwise ids that were lost before it would be lost for good.
 */
static bool
redis_store_add(void *connection, const StoreKey *keys, int n, const StoreWatermark *watermark,
				StoreFailure *failure)
{
	StringInfo	out = begin_commands();
	char	   *name = psprintf("%s%s", WATERMARK_PREFIX, watermark->client);

	resp_put_array(out, 6 + 2 * n);
	resp_put_string(out, "EVAL");
	resp_put_string(out, add_script);
	resp_put_string(out, "1");
	resp_put_string(out, name);
	resp_put_string(out, watermark->expected);
	resp_put_string(out, watermark->watermark);
	for (int i = 0; i < n; i++)
	{
		int64		ms = Max(keys[i].retention / 1000, 1);

		put_key(out, &keys[i].key);
		resp_put_number(out, ms > MAX_MS ? 0 : ms);
	}
	return send_commands(connection, out, failure) && read_role(connection, failure) &&
		read_ok(connection, failure);
}

/*
 * Reads the watermark, and whether the server may evict keys. If we may not
 * call INFO, it is assumed not to.
 */
static bool
redis_store_inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure)
{
	StringInfo	out = begin_commands();
	char	   *name = psprintf("%s%s", WATERMARK_PREFIX, client);
	redisReply *reply;
	bool		understood;

	resp_put_array(out, 2);
	resp_put_string(out, "GET");
	resp_put_string(out, name);
	resp_put_array(out, 2);
	resp_put_string(out, "INFO");
	resp_put_string(out, "memory");
	if (!send_commands(connection, out, failure) || !read_role(connection, failure))
		return false;

	memset(report, 0, sizeof(*report));
	report->keeps_watermark = true;
	reply = receive_reply(connection, failure);
	if (reply == NULL)
		return false;
	understood = reply->type == REDIS_REPLY_NIL ||
		(reply->type == REDIS_REPLY_STRING && reply->len < sizeof(report->watermark));
	if (!understood)
		fail_with(failure, reply);
	else if (reply->type == REDIS_REPLY_STRING)
		strlcpy(report->watermark, reply->str, sizeof(report->watermark));
	freeReplyObject(reply);
	if (!understood)
		return false;

	reply = receive_reply(connection, failure);
	if (reply == NULL)
		return false;
	report->evicts = reply->type == REDIS_REPLY_STRING && may_evict(reply->str);
	freeReplyObject(reply);
	return true;
}

/* Begins a batch of commands; the first one asks for the role of the server. */
static StringInfo
begin_commands(void)
{
	StringInfo	out = makeStringInfo();

	resp_put_array(out, 1);
	resp_put_string(out, "ROLE");
	return out;
}

/* Adds the name of an id's key in the store. */
static void
put_key(StringInfo out, const pg_uuid_t *key)
{
	char		name[sizeof(KEY_PREFIX) - 1 + UUID_LEN];

	memcpy(name, KEY_PREFIX, sizeof(KEY_PREFIX) - 1);
	memcpy(name + sizeof(KEY_PREFIX) - 1, key->data, UUID_LEN);
	resp_put(out, name, sizeof(name));
}

/* Sends a batch of commands. Returns false, with the reason, if the link failed. */
static bool
send_commands(RedisLink *link, StringInfo out, StoreFailure *failure)
{
	bool		sent = redis_link_send(link, out->data, out->len);

	if (!sent)
		fail_with_link(failure, link);
	return sent;
}

/* Reads the answer to ROLE. */
static bool
read_role(RedisLink *link, StoreFailure *failure)
{
	redisReply *reply = receive_reply(link, failure);
	const char *role = NULL;
	bool		is_master;

	if (reply == NULL)
		return false;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING)
		role = reply->element[0]->str;
	is_master = role && strcmp(role, "master") == 0;
	if (role && !is_master)
		store_failure_set(failure, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						  "it is a replica, which might lack what was added last");
	else if (!is_master)
		fail_with(failure, reply);
	freeReplyObject(reply);
	return is_master;
}

/* Reads the answer of the script. */
static bool
read_ok(RedisLink *link, StoreFailure *failure)
{
	redisReply *reply = receive_reply(link, failure);
	bool		ok = reply && reply->type == REDIS_REPLY_STATUS;

	if (reply && !ok)
		fail_with(failure, reply);
	if (reply)
		freeReplyObject(reply);
	return ok;
}

/* Waits for the next reply. Returns NULL, with the reason, if the link failed. */
static redisReply *
receive_reply(RedisLink *link, StoreFailure *failure)
{
	redisReply *reply = redis_link_receive(link);

	if (reply == NULL)
		fail_with_link(failure, link);
	return reply;
}

/* Notes what a reply says that was not expected. A Redis that is starting can be asked again soon. */
static void
fail_with(StoreFailure *failure, const redisReply *reply)
{
	char		text[FOREIGN_TEXT_BYTES];
	bool		is_starting;

	resp_error(reply, text, sizeof(text));
	is_starting = strncmp(text, "LOADING", 7) == 0;

	store_failure_set(failure, is_starting ? ERRCODE_CANNOT_CONNECT_NOW : ERRCODE_CONNECTION_FAILURE, "%s", text);
}

/* Notes why the link failed. */
static void
fail_with_link(StoreFailure *failure, RedisLink *link)
{
	store_failure_set(failure, ERRCODE_CONNECTION_FAILURE, "%s", redis_link_error(link));
}

/* Check whether INFO says that keys may be evicted. Our keys expire, so policies for such keys concern them, too. */
static bool
may_evict(const char *info)
{
	return strstr(info, "\nmaxmemory:0\r") == NULL && strstr(info, "maxmemory_policy:noeviction") == NULL;
}
