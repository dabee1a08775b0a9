/*
 * store_redis.c
 *		A Redis, or a Redis Cluster, that remembers message ids.
 *
 * Called by store.c. Each id is a key of its own that expires when its
 * retention is over; only the clock of Redis is involved, and a lookup is one
 * EXISTS. (Sets or small hashes that are rotated by time would need less memory,
 * but a lookup would have to ask all of them, and all servers that share the store
 * would have to agree on time and retention; see docs/internals.md.)
 *
 * Redis may lose its newest writes when it dies; what survives in each part
 * (redis_parts.c) is a prefix. So each addition ends by writing a watermark in each
 * part, and nothing more is added to one whose watermark is not there.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/timestamp.h"

#include "src/redis/resp.h"
#include "src/store/add.lua.h"
#include "src/store/redis_parts.h"
#include "src/store/store_kind.h"

#define KEY_PREFIX	"outbox:dedup:" /* and 16 bytes */
#define WATERMARK_PREFIX	"outbox:watermark:" /* and the client that wrote
												 * it */
#define NAME_BYTES	128			/* of a key */

/* Redis does not accept more milliseconds than this; such keys never expire. */
#define MAX_MS		INT64CONST(100000000000000)

static const char *redis_store_url_problem(const char *text);
static void *redis_store_open(const char *text, LinkAttend attend, StoreFailure *failure);
static void redis_store_close(void *connection);
static bool redis_store_contains(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool redis_store_remove(void *connection, const pg_uuid_t *key, bool *found, StoreFailure *failure);
static bool ask_about(RedisParts *parts, const char *command, const pg_uuid_t *key, bool *answer, StoreFailure *failure);
static bool redis_store_add(void *connection, const StoreKey *keys, int n, const StoreComparison *comparison,
							StoreFailure *failure);
static bool redis_store_inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure);

static StringInfo make_addition(const RedisParts *parts, int part, const StoreKey *keys, int n, const StoreComparison *comparison);
static void put_key(StringInfo out, const RedisParts *parts, const pg_uuid_t *key);
static void put_watermark(StringInfo out, const RedisParts *parts, int part, const char *client);
static bool read_answer(int part, int n, const redisReply *reply, void *arg);
static bool read_ok(int part, int n, const redisReply *reply, void *arg);
static bool read_report(int part, int n, const redisReply *reply, void *arg);
static bool may_evict(const char *info);

const StoreKind store_redis = {
	.has_scheme = redis_url_has_scheme,
	.url_problem = redis_store_url_problem,
	.differs_in_password = redis_url_differs_in_password,
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

	return redis_url_parse(text, &url, &problem) ? NULL : problem;
}

/* Each store has its own connections. */
static void *
redis_store_open(const char *text, LinkAttend attend, StoreFailure *failure)
{
	return redis_parts_open(text, attend, failure);
}

static void
redis_store_close(void *connection)
{
	redis_parts_close(connection);
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
ask_about(RedisParts *parts, const char *command, const pg_uuid_t *key, bool *answer, StoreFailure *failure)
{
	StringInfo	out = makeStringInfo();
	PartCommands commands = {.replies = 1, .has_one_key = true, .visit = read_answer, .arg = answer};

	resp_put_array(out, 2);
	resp_put_string(out, command);
	put_key(out, parts, key);
	commands.commands[redis_parts_of(parts, key)] = out;
	return redis_parts_run(parts, &commands, failure);
}

/* A PartVisit: reads how many keys there are of one. */
static bool
read_answer(int part, int n, const redisReply *reply, void *arg)
{
	bool		known = reply->type == REDIS_REPLY_INTEGER && (reply->integer == 0 || reply->integer == 1);

	if (known)
		*(bool *) arg = reply->integer == 1;
	return known;
}

/*
 * Adds ids by one script in each part, which adds nothing unless the watermark is the
 * expected one: otherwise ids that were lost before it would be lost for good.
 */
static bool
redis_store_add(void *connection, const StoreKey *keys, int n, const StoreComparison *comparison,
				StoreFailure *failure)
{
	RedisParts *parts = connection;
	PartCommands commands = {.replies = 1, .visit = read_ok};

	for (int part = 0; part < parts->n; part++)
		commands.commands[part] = make_addition(parts, part, keys, n, comparison);
	return redis_parts_run(parts, &commands, failure);
}

/* Makes the command that adds those of the ids that belong to a part. */
static StringInfo
make_addition(const RedisParts *parts, int part, const StoreKey *keys, int n, const StoreComparison *comparison)
{
	StringInfo	out = makeStringInfo();
	int			own = 0;

	for (int i = 0; i < n; i++)
		own += redis_parts_of(parts, &keys[i].key) == part;
	resp_put_array(out, 6 + 2 * own);
	resp_put_string(out, "EVAL");
	resp_put_string(out, add_script);
	resp_put_number(out, 1 + own);
	put_watermark(out, parts, part, comparison->client);
	for (int i = 0; i < n; i++)
	{
		if (redis_parts_of(parts, &keys[i].key) == part)
			put_key(out, parts, &keys[i].key);
	}
	resp_put_string(out, comparison->expected->part[part]);
	resp_put_string(out, comparison->next->part[part]);
	for (int i = 0; i < n; i++)
	{
		int64		ms = Max(keys[i].retention / 1000, 1);

		if (redis_parts_of(parts, &keys[i].key) == part)
			resp_put_number(out, ms > MAX_MS ? 0 : ms);
	}
	return out;
}

/* A PartVisit: reads the answer of the script. */
static bool
read_ok(int part, int n, const redisReply *reply, void *arg)
{
	return reply->type == REDIS_REPLY_STATUS;
}

/*
 * Reads the watermarks, and whether a server may evict keys. If we may not call
 * INFO, it is assumed not to.
 */
static bool
redis_store_inspect(void *connection, const char *client, StoreReport *report, StoreFailure *failure)
{
	RedisParts *parts = connection;
	PartCommands commands = {.replies = 2, .has_one_key = true, .visit = read_report, .arg = report};

	memset(report, 0, sizeof(*report));
	report->nparts = parts->n;
	for (int part = 0; part < parts->n; part++)
	{
		StringInfo	out = makeStringInfo();

		resp_put_array(out, 2);
		resp_put_string(out, "GET");
		put_watermark(out, parts, part, client);
		resp_put_array(out, 2);
		resp_put_string(out, "INFO");
		resp_put_string(out, "memory");
		commands.commands[part] = out;
	}
	return redis_parts_run(parts, &commands, failure);
}

/* A PartVisit: reads the watermark, and then the answer to INFO. */
static bool
read_report(int part, int n, const redisReply *reply, void *arg)
{
	StoreReport *report = arg;

	if (n == 1)
	{
		report->evicts |= reply->type == REDIS_REPLY_STRING && may_evict(reply->str);
		return true;
	}
	if (reply->type == REDIS_REPLY_STRING && reply->len < STORE_WATERMARK_BYTES)
		strlcpy(report->watermarks.part[part], reply->str, STORE_WATERMARK_BYTES);
	else
		return reply->type == REDIS_REPLY_NIL;
	return true;
}

/* Adds the name of an id's key in the store. */
static void
put_key(StringInfo out, const RedisParts *parts, const pg_uuid_t *key)
{
	char		name[NAME_BYTES];
	int			length = redis_parts_name(parts, redis_parts_of(parts, key), KEY_PREFIX, name, sizeof(name));

	memcpy(name + length, key->data, UUID_LEN);
	resp_put(out, name, length + UUID_LEN);
}

/* Adds the name of the watermark of a part. */
static void
put_watermark(StringInfo out, const RedisParts *parts, int part, const char *client)
{
	char		name[NAME_BYTES];
	int			length = redis_parts_name(parts, part, WATERMARK_PREFIX, name, sizeof(name));

	strlcpy(name + length, client, sizeof(name) - length);
	resp_put_string(out, name);
}

/* Check whether INFO says that keys may be evicted. Our keys expire, so policies for such keys concern them, too. */
static bool
may_evict(const char *info)
{
	return strstr(info, "\nmaxmemory:0\r") == NULL && strstr(info, "maxmemory_policy:noeviction") == NULL;
}
