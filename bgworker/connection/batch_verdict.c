/*
 * batch_verdict.c
 *		What Redis answered to one run of the script.
 *
 * Called by traffic.c and forbidden.c. Either all messages were added; or one was
 * refused, together with all of its batch that are refused for the same reason; or
 * the whole batch was, because one of the streams that it declares is forbidden;
 * or the error concerns the server, and the answer cannot be used. An error is
 * never taken for success.
 */
#include "postgres.h"

#include "bgworker/connection/batch_verdict.h"
#include "src/kill_point.h"
#include "src/redis/redis_link.h"
#include "src/redis/resp.h"

static bool begins_with_one(const char *error, const char *const *codes, int n);
static bool read_refused(Verdict *verdict, const redisReply *places, int messages);

/*
 * Reads the answer to a batch of `messages` messages, and frees it; `declared` tells
 * that the batch declares their streams. Returns false if it cannot be used; the error
 * then says why.
 */
bool
batch_verdict_read(Verdict *verdict, redisReply *reply, int messages, bool declared)
{
	verdict->added = -1;
	verdict->error[0] = '\0';
	verdict->is_forbidden = declared && messages > 0 && batch_verdict_forbids_key(reply);
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
		reply->element[0]->type == REDIS_REPLY_INTEGER)
	{
		verdict->added = (int) reply->element[0]->integer;
		if (reply->element[1]->type == REDIS_REPLY_STRING)
		{
			foreign_text_copy(verdict->error, sizeof(verdict->error), reply->element[1]->str, reply->element[1]->len);
			if (!read_refused(verdict, reply->element[2], messages))
				verdict->added = -1;
		}
	}
	else
		resp_error(reply, verdict->error, sizeof(verdict->error));
	if (verdict->is_forbidden)
	{
		verdict->added = 0;
		verdict->nrefused = 0;
	}
	freeReplyObject(reply);
	KILL_POINT("answer_read");

	/*
	 * Without an error all were added; otherwise the answer is not from our
	 * script.
	 */
	if (verdict->error[0] == '\0' && verdict->added != messages)
	{
		verdict->added = -1;
		strlcpy(verdict->error, "unexpected reply", sizeof(verdict->error));
	}
	return verdict->added >= 0 && !(verdict->error[0] != '\0' && batch_verdict_is_of_server(verdict->error));
}

/*
 * Check whether Redis has refused to run the script at all because we may not access one
 * of its keys. Nothing has happened then.
 */
bool
batch_verdict_forbids_key(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM ", strlen("NOPERM ")) == 0 &&
		!batch_verdict_forbids_command(reply->str);
}

/* Check whether an error concerns the server rather than one message or destination. */
bool
batch_verdict_is_of_server(const char *error)
{
	static const char *const codes[] = {"NOAUTH", "WRONGPASS", "NOSCRIPT", "CROSSSLOT", SCRIPT_FENCE_MOVED, SCRIPT_LEASE_LOST};

	return batch_verdict_is_of_slot(error) || begins_with_one(error, codes, lengthof(codes)) || batch_verdict_forbids_command(error);
}

/* Check whether an error of a server may be one of a hash slot of a cluster, or of the node that has it, for some time. */
bool
batch_verdict_is_of_slot(const char *error)
{
	static const char *const codes[] = {
		"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "OOM", "MISCONF", "BUSY",
		"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
		"ERR Script attempted"	/* to do what the state of a cluster forbids */
	};

	return begins_with_one(error, codes, lengthof(codes));
}

/*
 * Check whether an error with which the fence of a lane was not read, or not claimed, is one of
 * this lane or of its node alone, as far as can be told: permissions are given on each node, and
 * somebody may have put another key in the place of the fence. Another connection could do no
 * better.
 */
bool
batch_verdict_is_of_lane(const char *error)
{
	static const char *const codes[] = {"NOPERM", "WRONGTYPE"};

	return batch_verdict_is_of_slot(error) || begins_with_one(error, codes, lengthof(codes)) || batch_verdict_forbids_command(error);
}

/* Check whether an error says that a part of what the batch needs may have gone to another node. */
bool
batch_verdict_is_of_torn_slot(const char *error)
{
	static const char *const codes[] = {"TRYAGAIN"};

	return begins_with_one(error, codes, lengthof(codes));
}

/* Check whether an error begins with one of these codes. */
static bool
begins_with_one(const char *error, const char *const *codes, int n)
{
	for (int i = 0; i < n; i++)
	{
		size_t		length = strlen(codes[i]);

		if (strncmp(error, codes[i], length) == 0 && (error[length] == ' ' || error[length] == '\0'))
			return true;
	}
	return false;
}

/*
 * Check whether the error says that we may not run a command at all, or that it has another
 * name on that server. An error about one key that we may not access concerns a destination.
 * Redis has one code for both, and none in scripts up to 7.0. The text about a key precedes
 * the key's name, which may itself contain any text.
 */
bool
batch_verdict_forbids_command(const char *error)
{
	static const char *const texts[] = {"can't run this command", "permissions to run", "Unknown Redis command", "ERR unknown command"};
	static const char *const key_texts[] = {"can't access", "permissions to access", "permission to access"};

	for (int i = 0; i < lengthof(texts); i++)
	{
		const char *found = strstr(error, texts[i]);

		for (int j = 0; found && j < lengthof(key_texts); j++)
		{
			const char *key = strstr(error, key_texts[j]);

			if (key && key < found)
				found = NULL;
		}
		if (found)
			return true;
	}
	return false;
}

/*
 * Reads which messages of the batch were refused; the first one is right after
 * those that were added. Returns false if the list makes no sense.
 */
static bool
read_refused(Verdict *verdict, const redisReply *places, int messages)
{
	verdict->nrefused = 0;
	if (places->type != REDIS_REPLY_ARRAY || places->elements == 0 || places->elements > messages)
		return false;
	for (size_t i = 0; i < places->elements; i++)
	{
		const redisReply *place = places->element[i];
		int64		least = i == 0 ? verdict->added : verdict->refused[i - 1] + 1;

		if (place->type != REDIS_REPLY_INTEGER || place->integer < least || place->integer >= messages)
			return false;
		verdict->refused[verdict->nrefused++] = place->integer;
	}
	return places->element[0]->integer == verdict->added;
}
