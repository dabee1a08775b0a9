/*
 * cluster_partition_layout.c
 *		Tells a Redis Cluster over how many streams a destination is spread.
 *
 * Called by redis_session.c. It does for a cluster what partition_layout.c does for a
 * single Redis, at the same moments. Here the layout is in another slot than the lease, the fences
 * and the streams; so its script knows none of them, and what it needs of them is
 * found out before:
 *
 *	 claim		a field of ours in the layout gets a value that no other process has;
 *				the script writes nothing without it. So what a server sends that was
 *				frozen meanwhile, and has lost the lease, comes too late
 *	 read		the epoch; the script writes nothing if another database has changed it
 *				since, and all of this is done again
 *	 epoch		a greater one is noted in the database, as partition_layout.c does
 *	 ends		the last id of each stream that was to be read up to now. Nothing of ours
 *				is under way, so our newest messages are counted. What other databases
 *				add later they also add when the layout is written: they have their own
 *	 write		the script
 *
 * Dying anywhere is harmless: the next connection begins with the claim. A master that
 * fails over may lose a layout, while the messages behind it, on other masters, stay. So
 * it is compared every few seconds when nothing is under way, and told again.
 *
 * It must be called only while no batch is under way and the lease is ours by time.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/connection/cluster_partition_layout.h"
#include "bgworker/connection/partition_layout.h"
#include "bgworker/connection/partition_layout.lua.h"
#include "bgworker/connection/verdict.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/identity/cluster_lease.h"
#include "src/clock.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/redis/resp.h"

#define COMPARE_MS	3000
#define MAX_TRIES	10			/* if other databases change the same layout */
#define MAX_FORMER	4096		/* partitions that a stream may have */
#define ID_BYTES	48			/* of an entry */
#define FIXED_WORDS	11			/* of the script's arguments */

typedef enum Told
{
	TOLD,
	TOLD_TOO_LATE,				/* another layout is there */
	TOLD_NOT,					/* the links cannot be used */
	TOLD_REFUSED				/* noted with the destination */
} Told;

/* A layout that is being told of. */
typedef struct Layout
{
	RedisCluster *redis;
	Instance   *instance;		/* notes the epoch, if it is to be told */
	Destination *destination;
	char	   *key;
	char	   *claim;			/* names of our fields */
	char	   *field;
	char		epoch[24];		/* as it was read; empty = none */
	bool		is_known;		/* with the number that is wanted */
	int			former;			/* partitions that were to be read up to now */
	int			nwords;
	const char **words;			/* of the script; the ends behind the others */
} Layout;

static char claim_value[RANDOM_NAME_BYTES]; /* random, of this process */

static Told with_memory(Told (*action) (Layout *layout), RedisCluster *redis, const char *name, Instance *instance,
						Destination *destination);
static Told tell_until_done(Layout *layout);
static Told compare(Layout *layout);
static Told tell(Layout *layout);
static Told claim(Layout *layout);
static Told read_layout(Layout *layout);
static Told read_ends(Layout *layout);
static Told read_end(Layout *layout, const char *field, const char *stream);
static void copy_last_id(const redisReply *info, char *id);
static Told write_layout(Layout *layout);
static Told refused(Layout *layout, const redisReply *reply);

/*
 * Announces each destination whose number of partitions Redis has not been told, and
 * then has its messages spread over these. What Redis refuses is noted with the
 * destination. Returns false if it cannot be found out now; see redis_cluster_error().
 */
bool
cluster_partition_layout_settle(RedisCluster *redis, const char *name, Instance *instance)
{
	List	   *unsettled = destination_unsettled();
	Told		told = TOLD;

	for (int i = 0; told != TOLD_NOT && i < list_length(unsettled); i++)
	{
		Destination *destination = list_nth(unsettled, i);

		KILL_POINT("cluster_layout_wanted");
		told = with_memory(tell_until_done, redis, name, instance, destination);
		if (told != TOLD)
			continue;
		KILL_POINT("cluster_layout_announced");
		destination_settle(destination);
	}
	list_free(unsettled);
	return told != TOLD_NOT;
}

/*
 * Finds out every few seconds whether Redis still knows the partitions of all
 * destinations; those that it does not know are not settled any more. Returns false if
 * that cannot be found out now.
 */
bool
cluster_partition_layout_compare(RedisCluster *redis, const char *name)
{
	List	   *due = destination_compared_before(clock_now() - COMPARE_MS * INT64CONST(1000));
	Told		told = TOLD;

	for (int i = 0; told != TOLD_NOT && i < list_length(due); i++)
	{
		Destination *destination = list_nth(due, i);

		destination->compared = clock_now();
		told = with_memory(compare, redis, name, NULL, destination);
		if (told == TOLD_TOO_LATE)
			destination_unsettle(destination);
	}
	list_free(due);
	return told != TOLD_NOT;
}

/* Does something for a destination, and frees what that has allocated. */
static Told
with_memory(Told (*action) (Layout *layout), RedisCluster *redis, const char *name, Instance *instance,
			Destination *destination)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "outbox layout", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	Layout		layout = {.redis = redis, .instance = instance, .destination = destination};
	Told		told;

	if (claim_value[0] == '\0')
		unique_id_name(claim_value);
	layout.key = partition_layout_key(destination);
	layout.claim = psprintf("by:%s", name);
	layout.field = partition_layout_field(destination, name);
	told = action(&layout);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return told;
}

/* Tells Redis of a destination, once more if another database changes the layout meanwhile. */
static Told
tell_until_done(Layout *layout)
{
	for (int tries = 0; tries < MAX_TRIES; tries++)
	{
		Told		told = tell(layout);

		if (told != TOLD_TOO_LATE)
			return told;
	}
	redis_cluster_fail(layout->redis, "other databases changed the partitions of the same stream at each attempt");
	return TOLD_NOT;
}

/* Finds out whether Redis knows the partitions of a destination. */
static Told
compare(Layout *layout)
{
	Told		told = read_layout(layout);

	return told == TOLD && !layout->is_known ? TOLD_TOO_LATE : told;
}

/* Takes all steps for one destination. */
static Told
tell(Layout *layout)
{
	Told		told = claim(layout);

	if (told == TOLD)
		told = read_layout(layout);
	if (told != TOLD || layout->is_known)
		return told;
	told = read_ends(layout);
	return told == TOLD ? write_layout(layout) : told;
}

/* Has only this process write the layout on behalf of this instance. */
static Told
claim(Layout *layout)
{
	redisReply *reply;
	Told		told;

	if (!cluster_lease_is_valid())
	{
		redis_cluster_fail(layout->redis, "the lease has expired");
		return TOLD_NOT;
	}
	reply = redis_cluster_call_master(layout->redis, layout->key, 4, (const char *[]) {
		"HSET", layout->key, layout->claim, claim_value
	});
	if (reply == NULL)
		return TOLD_NOT;
	told = reply->type == REDIS_REPLY_INTEGER ? TOLD : refused(layout, reply);
	freeReplyObject(reply);
	return told;
}

/* Reads what Redis knows. A layout that another process has claimed does not count as known. */
static Told
read_layout(Layout *layout)
{
	redisReply *reply = redis_cluster_call_master(layout->redis, layout->key, 6, (const char *[]) {
		"HMGET", layout->key, layout->claim, layout->field, "epoch", "partitions"
	});
	const char *value[4] = {"", "", "", ""};
	Told		told = TOLD;

	if (reply == NULL)
		return TOLD_NOT;
	for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < Min(reply->elements, lengthof(value)); i++)
	{
		if (reply->element[i]->type == REDIS_REPLY_STRING)
			value[i] = reply->element[i]->str;
	}
	layout->is_known = strcmp(value[0], claim_value) == 0 && value[1][0] != '\0' &&
		atoi(value[1]) == layout->destination->wanted;
	strlcpy(layout->epoch, value[2], sizeof(layout->epoch));
	layout->former = Max(atoi(value[3]), 0);
	if (reply->type != REDIS_REPLY_ARRAY)
		told = refused(layout, reply);
	freeReplyObject(reply);
	return told;
}

/* Reads where the streams end that were to be read up to now. */
static Told
read_ends(Layout *layout)
{
	const char *stream = layout->destination->sent_stream;
	Told		told = TOLD;

	layout->former = Min(layout->former, MAX_FORMER);
	layout->words = palloc((FIXED_WORDS + 2 * (layout->former + 1)) * sizeof(char *));
	layout->nwords = FIXED_WORDS;
	told = read_end(layout, "end", stream);
	for (int i = 0; i < layout->former && told == TOLD; i++)
		told = read_end(layout, psprintf("end:%d", i), psprintf("%s:%d", stream, i));
	return told;
}

/* Reads where a stream ends. One that is not there, or is none, has no end. */
static Told
read_end(Layout *layout, const char *field, const char *stream)
{
	redisReply *reply = redis_cluster_call_master(layout->redis, stream, 3, (const char *[]) {"XINFO", "STREAM", stream});
	char		id[ID_BYTES] = "";
	char		error[FOREIGN_TEXT_BYTES] = "";
	Told		told = TOLD;

	if (reply == NULL)
		return TOLD_NOT;
	if (reply->type == REDIS_REPLY_ERROR)
		resp_error(reply, error, sizeof(error));
	if (verdict_is_of_server(error))
		told = refused(layout, reply);
	else
		copy_last_id(reply, id);
	freeReplyObject(reply);
	if (id[0] != '\0')
	{
		layout->words[layout->nwords++] = field;
		layout->words[layout->nwords++] = pstrdup(id);
	}
	return told;
}

/* Copies the last id of XINFO STREAM, names and values in turn. */
static void
copy_last_id(const redisReply *info, char *id)
{
	for (size_t i = 0; info->type == REDIS_REPLY_ARRAY && i + 1 < info->elements; i += 2)
	{
		const redisReply *name = info->element[i];
		const redisReply *value = info->element[i + 1];

		if (name->type == REDIS_REPLY_STRING && strcmp(name->str, "last-generated-id") == 0 &&
			value->type == REDIS_REPLY_STRING && value->len < ID_BYTES)
			strlcpy(id, value->str, ID_BYTES);
	}
}

/* Notes an epoch, and runs the script with it. */
static Told
write_layout(Layout *layout)
{
	const char *fixed[FIXED_WORDS] = {
		"EVAL", partition_layout_script, "1", layout->key, layout->claim, claim_value, layout->epoch,
		layout->field, layout->destination->sent_stream, psprintf("%d", layout->destination->wanted)
	};
	redisReply *reply;
	Told		told;

	if (!partition_layout_note_epoch(layout->instance, strtoll(layout->epoch, NULL, 10) + 1))
		return TOLD_NOT;
	KILL_POINT("cluster_layout_epoch_noted");
	fixed[FIXED_WORDS - 1] = psprintf(INT64_FORMAT, layout->instance->layout_epoch);
	memcpy(layout->words, fixed, sizeof(fixed));
	if (!cluster_lease_is_valid())
	{
		redis_cluster_fail(layout->redis, "the lease has expired");
		return TOLD_NOT;
	}
	reply = redis_cluster_call_master(layout->redis, layout->key, layout->nwords, layout->words);
	if (reply == NULL)
		return TOLD_NOT;
	if (reply->type == REDIS_REPLY_INTEGER)
		told = TOLD;
	else if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "EPOCH ", 6) == 0)
		told = TOLD_TOO_LATE;
	else
		told = refused(layout, reply);
	freeReplyObject(reply);
	return told;
}

/* Notes why Redis does not do what was asked for: the server is to blame, or the destination. */
static Told
refused(Layout *layout, const redisReply *reply)
{
	char		error[FOREIGN_TEXT_BYTES];

	resp_error(reply, error, sizeof(error));
	if (verdict_is_of_server(error))
	{
		redis_cluster_refused(layout->redis, reply, "could not write a number of partitions");
		return TOLD_NOT;
	}
	if (layout->destination->is_settled)
		destination_unsettle(layout->destination);
	partition_layout_refuse(layout->destination, error);
	return TOLD_REFUSED;
}
