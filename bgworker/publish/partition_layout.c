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
 *	 died before the script		the next connection runs it
 *	 after it					the next connection runs it, and it does nothing;
 *								consumers know the layout, no message has it yet
 *	 Redis loses it again		with it all messages behind it: the next connection
 *								runs it before these are sent again
 *	 Redis refuses it			the messages of that destination are deferred, and
 *								each probe of it runs it again
 */
#include "postgres.h"

#include "bgworker/defer/destination_settings.h"
#include "bgworker/publish/partition_layout.h"
#include "bgworker/publish/partition_layout.lua.h"
#include "bgworker/publish/lease.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/redis/resp.h"

static bool announce(RedisLink *link, const ScriptCall *call, const Lane *lane, Destination *destination);
static void note_answer(const redisReply *reply, Destination *destination);

/*
 * Announces each destination whose number of partitions Redis has not been told,
 * and then has its messages spread over these. Nothing of the lane
 * must be in flight. Sets *refused if Redis refused some, for a reason that may be its own or
 * that of a destination. Returns false if the link failed.
 */
bool
partition_layout_settle(RedisLink *link, const ScriptCall *call, const Lane *lane, bool *refused)
{
	Destination *destination;

	*refused = false;
	while ((destination = destination_next_unsettled()) != NULL)
	{
		KILL_POINT("layout_wanted");
		if (!announce(link, call, lane, destination))
			return false;
		*refused |= destination->refusal != NULL;
	}
	return true;
}

/* Runs the script for a destination. Returns false if the link failed. */
static bool
announce(RedisLink *link, const ScriptCall *call, const Lane *lane, Destination *destination)
{
	char	   *key = psprintf("outbox:partitions:%s", destination->sent_stream);
	char	   *field = psprintf("of:%s:%s", call->instance, destination->sent_dest);
	char		lease_ms[12];
	char		partitions[12];
	redisReply *reply;

	snprintf(lease_ms, sizeof(lease_ms), "%d", LEASE_MS);
	snprintf(partitions, sizeof(partitions), "%d", destination->wanted);
	reply = redis_link_call(link, 12, (const char *[]) {
		"EVAL", partition_layout_script, "3", key, lane->key, call->lease_key,
			lane->fence, lease_value(), lease_ms, field, destination->sent_stream, partitions
	});
	if (reply)
	{
		note_answer(reply, destination);
		freeReplyObject(reply);
	}
	pfree(key);
	pfree(field);
	return reply != NULL;
}

/* Notes that Redis was told of a destination, or why not. */
static void
note_answer(const redisReply *reply, Destination *destination)
{
	char		error[FOREIGN_TEXT_BYTES];
	char	   *refusal;

	if (reply->type == REDIS_REPLY_INTEGER)
	{
		KILL_POINT("layout_announced");
		destination_settle(destination);
		return;
	}
	resp_error(reply, error, sizeof(error));
	refusal = psprintf("could not write its number of partitions: %s", error);
	destination_refuse(destination, refusal);
	pfree(refusal);
}
