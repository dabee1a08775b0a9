/*
 * partition_layout.c
 *		Tells Redis over how many streams a destination is spread.
 *
 * Called by redis_session.c: for all destinations that have partitions on every
 * connection, because Redis may have lost what it was told, and for those that
 * were changed when all messages of a window are in Redis. It must be called only
 * while no batch is under way. Only when Redis has answered do messages go to
 * the new streams: so a consumer that sees one of them can see the layout.
 *
 * Each layout has an epoch, a number that increases. The database notes it before Redis
 * is told. So a layout that Redis has lost, and that consumers may have seen, is followed
 * by one with a greater epoch. It is the time in milliseconds, by the clock of this server,
 * or what is greater: for another database that writes to the same stream has notes of its own.
 *
 *	 died before the script		the next connection runs it
 *	 the epoch is noted			the next connection uses a greater one
 *	 after it					the next connection runs it, and it does nothing;
 *								consumers know the layout, no message has it yet
 *	 Redis loses it again		with it all messages behind it: the next connection
 *								runs it before these are sent again
 *	 Redis refuses it			the messages of that destination are deferred, and
 *								each probe of it runs it again
 */
#include "postgres.h"

#include "bgworker/connection/batch_verdict.h"
#include "bgworker/connection/partition_layout.h"
#include "bgworker/connection/partition_layout.lua.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/identity/lease.h"
#include "bgworker/process/transaction.h"
#include "src/clock.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/redis/resp.h"

/*
 * What others have written as an epoch is followed up to here, which is in the year 5138:
 * with a greater one noted, there might be none left for us. (The script reads ten times
 * as many.)
 */
#define MAX_FOREIGN_EPOCH	INT64CONST(100000000000000)

/* What it takes to run the script. */
typedef struct Announcement
{
	RedisLink  *link;
	const ScriptCall *call;
	const Lane *lane;
	Instance   *instance;
} Announcement;

static bool announce(const Announcement *how, Destination *destination);
static redisReply *run_script(const Announcement *how, const Destination *destination, int64 epoch);
static void note_answer(RedisLink *link, const redisReply *reply, Destination *destination);

/*
 * Announces each destination whose number of partitions Redis has not been told,
 * and then has its messages spread over these. Nothing of the lane must be under way,
 * and no transaction open. What Redis refuses is noted with the destination. Returns false
 * if the link failed or was closed, as it is if the server is to blame.
 */
bool
partition_layout_settle(RedisLink *link, const ScriptCall *call, const Lane *lane, Instance *instance)
{
	Announcement how = {link, call, lane, instance};
	List	   *unsettled = destination_unsettled();
	bool		told = true;

	for (int i = 0; told && i < list_length(unsettled); i++)
	{
		Destination *destination = list_nth(unsettled, i);

		KILL_POINT("layout_wanted");
		told = announce(&how, destination);
	}
	list_free(unsettled);
	return told;
}

/*
 * Notes an epoch in the database, at least that one, which is used for no other layout.
 * No transaction must be open. Returns false if the links were closed.
 */
bool
partition_layout_note_epoch(Instance *instance, int64 least)
{
	int64		now_ms = clock_unix_ms(GetCurrentTimestamp());
	MemoryContext caller = CurrentMemoryContext;

	if (!transaction_begin("noting the epoch of a layout"))
	{
		traffic_give_up();
		return false;
	}
	instance_note_layout(instance, Max(Max(least, now_ms), instance->layout_epoch + 1));
	transaction_commit();
	MemoryContextSwitchTo(caller);
	return true;
}

/*
 * Check whether an epoch may be noted that follows one found in Redis: our own may be
 * followed whatever it is. If not, this is noted with the destination.
 */
bool
partition_layout_may_follow(const Instance *instance, int64 least, Destination *destination)
{
	char	   *error;

	if (least <= MAX_FOREIGN_EPOCH || least <= instance->layout_epoch + 1)
		return true;
	error = psprintf("the field epoch of outbox:partitions:%s is too large. Delete that key: it is written again",
					 destination->sent_stream);
	partition_layout_refuse(destination, error);
	pfree(error);
	return false;
}

/* Returns the name of the key that the layout of a destination's stream is in, allocated in the current context. */
char *
partition_layout_key(const Destination *destination)
{
	return psprintf("outbox:partitions:%s", destination->sent_stream);
}

/* Returns the name of the field in it that tells of a destination of an instance, allocated in the current context. */
char *
partition_layout_field(const Destination *destination, const char *instance)
{
	return psprintf("of:%s:%s", instance, destination->sent_dest);
}

/*
 * Check whether an error of the script concerns the server, and not the destination. Permissions
 * that only partitions need may be missing without others being so.
 */
bool
partition_layout_is_trouble(const char *error)
{
	return batch_verdict_is_of_server(error) && !batch_verdict_forbids_command(error);
}

/* Notes with a destination why Redis cannot be told of it. */
void
partition_layout_refuse(Destination *destination, const char *error)
{
	char	   *refusal = psprintf("could not write its number of partitions: %s", error);

	destination_refuse(destination, refusal);
	pfree(refusal);
}

/* Tells Redis of a destination. Returns false if the link failed or was closed. */
static bool
announce(const Announcement *how, Destination *destination)
{
	int64		epoch = 0;		/* finds out whether Redis knows the layout */

	for (int tries = 0; tries < PARTITION_LAYOUT_TRIES; tries++)
	{
		redisReply *reply = run_script(how, destination, epoch);
		int64		least;

		if (reply == NULL)
			return false;
		least = reply->type == REDIS_REPLY_INTEGER ? Max(reply->integer, 0) : 0;
		if (least == 0)
			note_answer(how->link, reply, destination);
		freeReplyObject(reply);
		if (!redis_link_is_open(how->link))
			return false;
		if (least == 0 || !partition_layout_may_follow(how->instance, least, destination))
			return true;
		if (!partition_layout_note_epoch(how->instance, least))
			return false;
		KILL_POINT("layout_epoch_noted");
		epoch = how->instance->layout_epoch;
	}
	partition_layout_refuse(destination, PARTITION_LAYOUT_ASKS_AGAIN);
	return true;
}

/* Runs the script for a destination. Returns NULL if the link failed. */
static redisReply *
run_script(const Announcement *how, const Destination *destination, int64 epoch)
{
	char	   *key = partition_layout_key(destination);
	char	   *field = partition_layout_field(destination, how->call->instance);
	char		lease_ms[12];
	char		partitions[12];
	char		layout_epoch[24];
	redisReply *reply;

	snprintf(lease_ms, sizeof(lease_ms), "%d", LEASE_MS);
	snprintf(partitions, sizeof(partitions), "%d", destination->wanted);
	snprintf(layout_epoch, sizeof(layout_epoch), INT64_FORMAT, epoch);
	reply = redis_link_call(how->link, 13, (const char *[]) {
		"EVAL", partition_layout_script, "3", key, how->lane->key, how->call->lease_key,
			how->lane->fence, lease_value(), lease_ms, field, destination->sent_stream, partitions, layout_epoch
	});
	pfree(key);
	pfree(field);
	return reply;
}

/* Notes that Redis was told of a destination, or why not; closes the link if the server is to blame. */
static void
note_answer(RedisLink *link, const redisReply *reply, Destination *destination)
{
	char		error[FOREIGN_TEXT_BYTES];

	if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0)
	{
		KILL_POINT("layout_announced");
		destination_settle(destination);
		return;
	}
	resp_error(reply, error, sizeof(error));
	if (partition_layout_is_trouble(error))
		redis_link_fail_with_reply(link, reply, PARTITION_LAYOUT_FAILED);
	else
		partition_layout_refuse(destination, error);
}
