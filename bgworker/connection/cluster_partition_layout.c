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
 *	 ends		the last id of each stream that was to be read up to now (stream_end.lua).
 *				Nothing of ours is under way, so our newest messages are counted. What other
 *				databases add later they also add when the layout is written: they have their own
 *	 epoch		a new one is noted in the database
 *	 write		the script, which says, as it does to partition_layout.c, if the epoch is not
 *				greater than the one that is there: a greater one is noted, and it runs again
 *
 * Dying anywhere is harmless: the next connection begins with the claim. A master that
 * fails over may lose a layout, while the messages behind it, on other masters, stay. So
 * it is compared every few seconds when nothing is under way, and told again.
 *
 * There may be thousands of destinations and of streams, and each takes a round trip: so
 * the lease is kept meanwhile, and layouts are compared only for a moment at a time. It
 * must be called only while no batch is under way.
 *
 * The slot of a layout may have no message: if it cannot be used for now, it counts as
 * blocked (lanes.c), so that messages for others go on, spread as they were before.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "bgworker/connection/batch_verdict.h"
#include "bgworker/connection/cluster_partition_layout.h"
#include "bgworker/connection/nodes_away.h"
#include "bgworker/connection/partition_layout.h"
#include "bgworker/connection/partition_layout.lua.h"
#include "bgworker/connection/stream_end.lua.h"
#include "bgworker/connection/torn_slots.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/identity/redis_lease.h"
#include "bgworker/lane/lanes.h"
#include "src/clock.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/redis/resp.h"
#include "src/redis_cluster/hash_slot.h"

#define COMPARE_MS	3000
#define TURN_MS		50			/* of comparing: messages wait meanwhile */
#define MAX_TRIES	10			/* if other databases change the same layout */
#define MAX_FORMER	4096		/* partitions that a stream may have */
#define ID_BYTES	48			/* of an entry */
#define FIXED_WORDS	11			/* of the script's arguments */

typedef enum Told
{
	TOLD,
	TOLD_TOO_LATE,				/* another layout is there */
	TOLD_NOT,					/* the links cannot be used */
	TOLD_BLOCKED,				/* a hash slot cannot, which is noted with the
								 * layout */
	TOLD_REFUSED				/* noted with the destination */
} Told;

/* A layout that is being told of. */
typedef struct Layout
{
	RedisCluster *redis;
	const char *lease_key;
	Instance   *instance;		/* notes the epoch, if it is to be told */
	Destination *destination;
	char	   *key;
	char	   *claim;			/* names of our fields */
	char	   *field;
	char		epoch[24];		/* as it was read; empty = none */
	bool		is_known;		/* with the number that is wanted */
	int			former;			/* partitions that were to be read up to now */
	int			slot;			/* that the last command was for, */
	char		why[LINK_ERROR_BYTES + FOREIGN_TEXT_BYTES]; /* and why it cannot be
															 * used */
	int			nwords;
	const char **words;			/* of the script; the ends behind the others */
} Layout;

static char claim_value[RANDOM_NAME_BYTES]; /* random, of this process */

static bool may_go_on(Told told);
static int	compare_ages(const ListCell *a, const ListCell *b);
static Told with_memory(Told (*action) (Layout *layout), RedisCluster *redis, const ScriptCall *call, Instance *instance,
						Destination *destination);
static bool block_slot(const Layout *layout);
static Told tell_until_done(Layout *layout);
static Told compare(Layout *layout);
static Told tell(Layout *layout);
static Told claim(Layout *layout);
static Told read_layout(Layout *layout);
static Told read_ends(Layout *layout);
static Told read_end(Layout *layout, const char *field, const char *stream);
static Told write_layout(Layout *layout);
static Told run_script(Layout *layout, int64 *least);
static redisReply *call_master(Layout *layout, const char *key, int argc, const char **argv);
static Told refused(Layout *layout, const redisReply *reply);
static Told refused_by_slot(Layout *layout, const char *error);

/*
 * Announces each destination whose number of partitions Redis has not been told, and
 * then has its messages spread over these. What Redis refuses is noted with the
 * destination. Where a slot is blocked, the others wait, too. Returns false if it cannot
 * be found out now; see redis_cluster_error().
 */
bool
cluster_partition_layout_settle(RedisCluster *redis, const ScriptCall *call, Instance *instance)
{
	List	   *unsettled = destination_unsettled();
	Told		told = TOLD;

	for (int i = 0; may_go_on(told) && i < list_length(unsettled); i++)
	{
		Destination *destination = list_nth(unsettled, i);

		KILL_POINT("cluster_layout_wanted");
		told = with_memory(tell_until_done, redis, call, instance, destination);
		if (told != TOLD)
			continue;
		KILL_POINT("cluster_layout_announced");
		destination_settle(destination);
	}
	list_free(unsettled);
	return told != TOLD_NOT;
}

/*
 * Finds out every few seconds whether Redis still knows the partitions of destinations:
 * of as many as there is time for, those first that were not looked at for longest. Those
 * that it does not know are not settled any more. Returns false if that cannot be found
 * out now.
 */
bool
cluster_partition_layout_compare(RedisCluster *redis, const ScriptCall *call)
{
	TimestampTz begun = clock_now();
	List	   *due = destination_compared_before(begun - COMPARE_MS * INT64CONST(1000));
	Told		told = TOLD;

	list_sort(due, compare_ages);
	for (int i = 0; may_go_on(told) && i < list_length(due) && clock_now() - begun < TURN_MS * INT64CONST(1000); i++)
	{
		Destination *destination = list_nth(due, i);

		destination->compared = clock_now();
		told = with_memory(compare, redis, call, NULL, destination);
		if (told == TOLD_TOO_LATE)
			destination_unsettle(destination);
	}
	list_free(due);
	return told != TOLD_NOT;
}

/* Check whether Redis can be asked about the next destination. */
static bool
may_go_on(Told told)
{
	return told != TOLD_NOT && told != TOLD_BLOCKED;
}

/* Orders destinations by when their layouts were compared last; for list_sort(). */
static int
compare_ages(const ListCell *a, const ListCell *b)
{
	TimestampTz left = ((const Destination *) lfirst(a))->compared;
	TimestampTz right = ((const Destination *) lfirst(b))->compared;

	return left < right ? -1 : left > right;
}

/* Does something for a destination, and frees what that has allocated. */
static Told
with_memory(Told (*action) (Layout *layout), RedisCluster *redis, const ScriptCall *call, Instance *instance,
			Destination *destination)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "outbox layout", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	Layout		layout = {.redis = redis, .lease_key = call->lease_key, .instance = instance, .destination = destination};
	Told		told;

	if (claim_value[0] == '\0')
		unique_id_name(claim_value);
	layout.key = partition_layout_key(destination);
	layout.claim = psprintf("by:%s", call->instance);
	layout.field = partition_layout_field(destination, call->instance);
	told = action(&layout);
	if (told == TOLD_BLOCKED && !block_slot(&layout))
		told = TOLD_NOT;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return told;
}

/*
 * Has the slot that cannot be used count as blocked. Returns false if its lane is in use, or
 * the link of another one has failed with it: then the next connection finds out which are.
 */
static bool
block_slot(const Layout *layout)
{
	bool		can_be_used = true;

	for (int i = 0; i < lanes_count(); i++)
		can_be_used &= redis_link_is_open(lanes_get(i)->link);
	if (can_be_used && lanes_block_unused(layout->slot, layout->why))
		return true;
	if (strcmp(layout->why, redis_cluster_error(layout->redis)) != 0)
		redis_cluster_fail(layout->redis, layout->why);
	return false;
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

	if (!redis_lease_keep(layout->redis, layout->lease_key))
		return TOLD_NOT;
	reply = call_master(layout, layout->key, 4, (const char *[]) {
		"HSET", layout->key, layout->claim, claim_value
	});
	if (reply == NULL)
		return TOLD_BLOCKED;
	told = reply->type == REDIS_REPLY_INTEGER ? TOLD : refused(layout, reply);
	freeReplyObject(reply);
	return told;
}

/* Reads what Redis knows. A layout that another process has claimed does not count as known. */
static Told
read_layout(Layout *layout)
{
	redisReply *reply = call_master(layout, layout->key, 6, (const char *[]) {
		"HMGET", layout->key, layout->claim, layout->field, "epoch", "partitions"
	});
	const char *value[4] = {"", "", "", ""};
	Told		told = TOLD;

	if (reply == NULL)
		return TOLD_BLOCKED;
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

/* Reads where a stream ends. One that is not there, or is none, has no end; one that we may not read may have. */
static Told
read_end(Layout *layout, const char *field, const char *stream)
{
	redisReply *reply;
	char		id[ID_BYTES] = "";
	char		error[FOREIGN_TEXT_BYTES] = "";
	Told		told = TOLD;

	if (!redis_lease_keep(layout->redis, layout->lease_key))
		return TOLD_NOT;
	reply = call_master(layout, stream, 4, (const char *[]) {"EVAL", stream_end_script, "1", stream});
	if (reply == NULL)
		return TOLD_BLOCKED;
	if (reply->type == REDIS_REPLY_ERROR)
		resp_error(reply, error, sizeof(error));
	if (batch_verdict_is_of_server(error) || batch_verdict_forbids_key(reply))
		told = refused(layout, reply);
	else if (reply->type == REDIS_REPLY_STRING && reply->len < ID_BYTES)
		strlcpy(id, reply->str, ID_BYTES);
	freeReplyObject(reply);
	if (id[0] != '\0')
	{
		layout->words[layout->nwords++] = field;
		layout->words[layout->nwords++] = pstrdup(id);
	}
	return told;
}

/* Notes an epoch and runs the script with it, once more if Redis has a greater one. */
static Told
write_layout(Layout *layout)
{
	int64		least = 0;

	for (int tries = 0; tries < PARTITION_LAYOUT_TRIES; tries++)
	{
		Told		told;

		if (!partition_layout_note_epoch(layout->instance, least))
			return TOLD_NOT;
		KILL_POINT("cluster_layout_epoch_noted");
		told = run_script(layout, &least);
		if (told != TOLD || least == 0)
			return told;
		if (!partition_layout_may_follow(layout->instance, least, layout->destination))
			return TOLD_REFUSED;
	}
	partition_layout_refuse(layout->destination, PARTITION_LAYOUT_ASKS_AGAIN);
	return TOLD_REFUSED;
}

/* Runs the script with the epoch that was noted. Sets the least one that may be used, 0 if that was written. */
static Told
run_script(Layout *layout, int64 *least)
{
	const char *fixed[FIXED_WORDS] = {
		"EVAL", partition_layout_script, "1", layout->key, layout->claim, claim_value, layout->epoch, layout->field,
		layout->destination->sent_stream, psprintf("%d", layout->destination->wanted),
		psprintf(INT64_FORMAT, layout->instance->layout_epoch)
	};
	redisReply *reply;
	Told		told = TOLD;

	memcpy(layout->words, fixed, sizeof(fixed));
	if (!redis_lease_keep(layout->redis, layout->lease_key))
		return TOLD_NOT;
	reply = call_master(layout, layout->key, layout->nwords, layout->words);
	if (reply == NULL)
		return TOLD_BLOCKED;
	if (reply->type == REDIS_REPLY_INTEGER)
		*least = Max(reply->integer, 0);
	else if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "EPOCH ", 6) == 0)
		told = TOLD_TOO_LATE;
	else
		told = refused(layout, reply);
	freeReplyObject(reply);
	return told;
}

/* Sends a command to the master that has a key. Returns NULL if it does not answer, or did not a moment ago; layout->why says so. */
static redisReply *
call_master(Layout *layout, const char *key, int argc, const char **argv)
{
	const RedisNode *node;
	const char *why = NULL;
	redisReply *reply = NULL;

	layout->slot = hash_slot_of(key, strlen(key));
	node = redis_cluster_node_of(layout->redis, layout->slot);
	if (node)
		why = nodes_away_why(node);
	if (why == NULL)
		reply = redis_cluster_call_master(layout->redis, key, argc, argv);
	if (reply == NULL)
		strlcpy(layout->why, why ? why : redis_cluster_error(layout->redis), sizeof(layout->why));
	return reply;
}

/* Notes why Redis does not do what was asked for: the server is to blame, a slot, or the destination. */
static Told
refused(Layout *layout, const redisReply *reply)
{
	char		error[FOREIGN_TEXT_BYTES];

	resp_error(reply, error, sizeof(error));
	if (batch_verdict_is_of_slot(error))
		return refused_by_slot(layout, error);
	if (partition_layout_is_trouble(error))
	{
		redis_cluster_fail_with_reply(layout->redis, reply, PARTITION_LAYOUT_FAILED);
		return TOLD_NOT;
	}
	if (layout->destination->is_settled)
		destination_unsettle(layout->destination);
	partition_layout_refuse(layout->destination, error);
	return TOLD_REFUSED;
}

/* Notes why the slot cannot be used for now. If the key has gone to another node, its fence may still be here: that must not free it. */
static Told
refused_by_slot(Layout *layout, const char *error)
{
	traffic_locate_error(layout->slot, error, layout->why, sizeof(layout->why));
	if (strncmp(error, "ASK ", strlen("ASK ")) == 0)
		torn_slots_note_refusal(layout->slot);
	return TOLD_BLOCKED;
}
