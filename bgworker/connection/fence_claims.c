/*
 * fence_claims.c
 *		Reads the fences of lanes and claims them.
 *
 * Called by redis_session.c and publisher.c. A fence is claimed by writing the name of
 * this connection into it (lane_claim()). What is done with the fences of several lanes
 * is sent to all of them before the first answer is waited for. Nothing else may be under
 * way. Each function returns false if the links were closed.
 *
 * Between the two it is noted which eras the fences tell of (era.c): a claim takes the
 * place of the one before, and so the only trace of a server that has claimed a fence and
 * whose first batch is still on its way.
 *
 * A lane that cannot be claimed for now, because of its slot or of the node that has it,
 * is blocked (lanes.c), and nothing is done with it from then on. If all are, or if it is
 * not known what is wrong, the connection has failed.
 *
 * A lane that is used for the first time (the order of steps is in used_lanes.c) gets
 * a fence at the end of the window that was sent last, for nothing up to there was
 * for it.
 */
#include "postgres.h"

#include "bgworker/connection/fence_claims.h"
#include "bgworker/connection/fences.h"
#include "bgworker/connection/nodes_away.h"
#include "bgworker/connection/torn_slots.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/lane/era.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/lane/resume.h"
#include "bgworker/lane/used_lanes.h"
#include "bgworker/process/transaction.h"
#include "src/foreign_text.h"
#include "src/kill_point.h"
#include "src/redis/resp.h"
#include "src/redis_cluster/hash_slot.h"

/* Why a connection is begun again, in which all fences are claimed in a new era. */
#define NEW_ERA		"another server has published, or the database has gone back in time"

static bool begin_era_if_due(bool another_published, int64 published);
static bool know_eras(int first);
static void meet_eras(int first);
static bool claim_all(void);
static bool claim(int first);
static bool read_fences(int first, bool of_others);
static bool reach(Lane *lane, bool of_others);
static bool read_fence(Lane *lane, bool of_others);
static void block(Lane *lane, const char *error);
static void want_claimed(Lane *lane);
static bool want_first_use(const Position *position, int first);
static bool set_claims(int first);
static bool receive_claim(Lane *lane);

/*
 * Writes the names of this connection into all fences that there are in a cluster, of
 * whatever slot. Called when another server published before us: what it has sent and
 * is still on its way, even to lanes of which our database knows nothing, is refused
 * from then on. A lane without a fence needs nothing, for no batch builds on that; and
 * to one that it claims later the other server sends nothing, without the lease. An era
 * begins after the last window that is published. No lane is in use after that.
 */
bool
fence_claims_bar_others(int64 published)
{
	for (int slot = 0; slot < HASH_SLOTS; slot++)
		lanes_enter(slot);
	if (!read_fences(0, true) || !begin_era_if_due(true, published))
		return false;
	for (int i = 0; i < lanes_count(); i++)
	{
		if (lanes_get(i)->fence[0] != '\0')
			want_claimed(lanes_get(i));
	}
	if (!fences_set_wanted())
		return false;
	lanes_begin(true);
	KILL_POINT("lane_others_barred");
	return true;
}

/*
 * Reads the fences of all lanes in use, and writes the names of this connection into
 * them, without moving them. Lanes that are blocked are set apart; all must not be. If
 * another server published, as far as the database or a fence tells, an era begins
 * before that.
 */
bool
fence_claims_take(bool another_published, int64 published)
{
	if (traffic_is_clustered() && !redis_cluster_refresh(traffic_redis()))
		return traffic_fail_as_cluster();
	if (!read_fences(0, false))
		return false;
	lanes_drop_unused();
	return begin_era_if_due(another_published, published) && claim_all();
}

/* Claims the fences of all lanes in use once more, because an era has begun since they were claimed. */
bool
fence_claims_renew(void)
{
	return claim_all();
}

/*
 * Tries to claim the lanes that are blocked, and sets *freed if any could be: then the
 * connection must be begun again. No master gets more time for that than so many
 * milliseconds.
 */
bool
fence_claims_try_blocked(int patience_ms, bool *freed)
{
	int			first;
	bool		tried;

	nodes_away_forget();
	if (!redis_cluster_refresh_elsewhere(traffic_redis()))
		return traffic_fail_as_cluster();
	redis_cluster_limit(traffic_redis(), patience_ms);
	first = lanes_enter_blocked();
	tried = read_fences(first, false) && know_eras(first) && claim(first);
	redis_cluster_limit(traffic_redis(), 0);
	*freed = tried && lanes_count() > first;
	return tried;
}

/*
 * Takes the lanes into use that are wanted for messages of the next page: claims
 * their fences, and notes them on disk. Nothing of that page may be sent before a
 * standby has the note (transaction_confirm()). Those that are blocked are not noted:
 * what is for them is left out.
 */
bool
fence_claims_use_wanted(const Position *position)
{
	int			first = lanes_enter_wanted();

	if (!read_fences(first, false) || !know_eras(first) || !want_first_use(position, first) || !set_claims(first))
		return false;
	for (int i = first; i < lanes_count(); i++)
		used_lanes_add(lanes_get(i)->slot);
	if (used_lanes_note())
		return true;
	traffic_give_up();
	return false;
}

/* Notes which eras the fences tell of that were read, and has an era begin if that is due. */
static bool
begin_era_if_due(bool another_published, int64 published)
{
	meet_eras(0);
	KILL_POINT("fences_read");
	if (!transaction_begin("noting eras"))
	{
		traffic_give_up();
		return false;
	}
	era_begin_if_due(another_published, published);
	transaction_commit();
	KILL_POINT("eras_noted");
	return true;
}

/*
 * Check whether the fences of the lanes from that one on tell of no era that is not known.
 * If they do, the next connection begins an era; this one is over.
 */
static bool
know_eras(int first)
{
	bool		known;

	meet_eras(first);
	if (!era_has_met())
		return true;
	if (!transaction_begin("looking for eras"))
	{
		traffic_give_up();
		return false;
	}
	known = era_knows_all_met();
	transaction_commit();
	return known || traffic_fail(NEW_ERA);
}

/* Remembers which eras the fences of the lanes from that one on tell of. */
static void
meet_eras(int first)
{
	for (int i = first; i < lanes_count(); i++)
		era_meet(lanes_get(i)->fence);
}

/* Claims all lanes in use, whose fences were read; all being blocked must not be. */
static bool
claim_all(void)
{
	if (!claim(0))
		return false;
	if (lanes_count() > 0)
		return true;
	nodes_away_forget();
	return traffic_fail_as_blocked(lanes_why_blocked());
}

/* Claims the lanes in use from that one on, whose fences were read; those that are blocked are set apart. */
static bool
claim(int first)
{
	for (int i = first; i < lanes_count(); i++)
		want_claimed(lanes_get(i));
	return set_claims(first);
}

/*
 * Reads the fences of all lanes in use from that one on, and sets those apart that are
 * blocked. `of_others` tells that they are only to be barred, which must be all of them;
 * one that has gone to another node amid a move of its slot is out of reach for all
 * until the move is over.
 */
static bool
read_fences(int first, bool of_others)
{
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);

		if (!reach(lane, of_others) || (!lane->blocked && !traffic_ask(lane, 2, (const char *[]) {"GET", lane->key})))
			return false;
	}
	for (int i = first; i < lanes_count(); i++)
	{
		if (!lanes_get(i)->blocked && !read_fence(lanes_get(i), of_others))
			return false;
	}
	if (of_others)
		return true;
	if (!torn_slots_block(first))
		return false;
	lanes_set_blocked_apart(first);
	return true;
}

/* Finds the link to a lane, or blocks it. Fails if that must not be. */
static bool
reach(Lane *lane, bool of_others)
{
	const char *why;

	if (of_others || !traffic_is_clustered())
		return traffic_reach(lane);
	why = traffic_try_reach(lane);
	if (why)
		lanes_block(lane, why);
	return true;
}

/* Receives the fence of a lane; it is empty if there is none. What is too long for one, or has a zero byte, somebody else has written. */
static bool
read_fence(Lane *lane, bool of_others)
{
	redisReply *reply = traffic_receive(lane);
	bool		none = reply &&
		(reply->type == REDIS_REPLY_NIL ||
		 (of_others && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "ASK ", 4) == 0));
	bool		is_text = reply && reply->type == REDIS_REPLY_STRING;
	bool		read = none || (is_text && reply->len < FENCE_BYTES && strlen(reply->str) == reply->len);
	char		error[FOREIGN_TEXT_BYTES];

	if (reply == NULL)
		return false;
	if (read)
		lane_note_read(lane, none ? "" : reply->str);
	else if (!of_others && traffic_is_clustered() &&
			 (is_text || (reply->type == REDIS_REPLY_ERROR && batch_verdict_is_of_lane(reply->str))))
	{
		resp_error(reply, error, sizeof(error));
		block(lane, error);
	}
	else
		redis_link_fail_with_reply(lane->link, reply, "could not read the fence");
	freeReplyObject(reply);
	return read || lane->blocked || traffic_fail_as_link(lane->link);
}

/* Blocks a lane because of what its node has answered. */
static void
block(Lane *lane, const char *error)
{
	char		why[LINK_ERROR_BYTES + FOREIGN_TEXT_BYTES];

	traffic_locate_error(lane->slot, error, why, sizeof(why));
	lanes_block(lane, why);
}

/* Has the name of this connection written into the fence of a lane. */
static void
want_claimed(Lane *lane)
{
	char		claimed[FENCE_BYTES];

	lane_claim(lane, claimed);
	lane_want(lane, claimed, lane->at);
}

/*
 * Has the fences of lanes that are used for the first time claimed where they are, if
 * they name a window behind the one that was sent last; otherwise moved there. Where one
 * shows that an era ends here, the next connection claims all of them in the new one.
 */
static bool
want_first_use(const Position *position, int first)
{
	char		claimed_in[ERA_BYTES];
	Window		sent;
	bool		found;

	strlcpy(claimed_in, era_name(), sizeof(claimed_in));
	if (!transaction_begin("reading a window"))
	{
		traffic_give_up();
		return false;
	}
	found = window_row_at(position->sent, &sent);
	for (int i = first; i < lanes_count(); i++)
	{
		Lane	   *lane = lanes_get(i);

		lane->at = resume_place_at_first_use(position, lane->fence);
		want_claimed(lane);
		if (found && place_precedes(lane->at, place_at_end(sent.number)))
			lane_want_end(lane, sent.number, &sent.uuid);
	}
	transaction_commit();
	return strcmp(claimed_in, era_name()) == 0 || traffic_fail(NEW_ERA);
}

/* Sets the fences that are wanted for lanes from that one on; sets those apart that are blocked, the others are ours. */
static bool
set_claims(int first)
{
	if (!fences_send_wanted(first))
		return false;
	for (int i = first; i < lanes_count(); i++)
	{
		if (lanes_get(i)->wanted[0] != '\0' && !receive_claim(lanes_get(i)))
			return false;
	}
	lanes_set_blocked_apart(first);
	for (int i = first; i < lanes_count(); i++)
		lanes_get(i)->is_ours = true;
	return true;
}

/* Receives the answer to a claim; the lane may be blocked. */
static bool
receive_claim(Lane *lane)
{
	Verdict		verdict = {0};

	if (!traffic_receive_claim(lane, &verdict))
		return false;
	if (verdict.error[0] == '\0')
		lane_note_set(lane);
	else
		block(lane, verdict.error);
	return true;
}
