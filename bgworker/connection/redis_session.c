/*
 * redis_session.c
 *		The dispatcher's connection to Redis: the handshake and the lease.
 *
 * Called by the dispatcher, redis_state.c, blocked_slots.c and publisher.c. When a
 * connection is opened, the server is checked, the script is loaded, the lease is taken,
 * and the fences are read and claimed (fence_claims.c); publishing resumes where they say.
 * No transaction is open while waiting for Redis.
 *
 * In a Redis Cluster there is a link to each master that has a lane (traffic.c), and
 * the lease has a script of its own (redis_lease.c).
 */
#include "postgres.h"

#include "bgworker/connection/cluster_partition_layout.h"
#include "bgworker/connection/fence_claims.h"
#include "bgworker/connection/fences.h"
#include "bgworker/connection/partition_layout.h"
#include "bgworker/connection/redis_server.h"
#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/traffic.h"
#include "bgworker/defer/destination_settings.h"
#include "bgworker/identity/lease.h"
#include "bgworker/identity/redis_lease.h"
#include "bgworker/lane/era.h"
#include "bgworker/lane/lanes.h"
#include "bgworker/lane/resume.h"
#include "bgworker/lane/stream_mapping.h"
#include "bgworker/lane/used_lanes.h"
#include "bgworker/process/transaction.h"
#include "src/clock.h"
#include "src/kill_point.h"
#include "src/problem.h"
#include "src/redis_cluster/hash_slot.h"
#include "src/sender_lock.h"
#include "src/unique_id.h"

static Instance *instance;
static LinkAttend attend_to;	/* called while waiting for Redis */

static bool prepare_link(RedisLink *link);
static bool check_servers(void);
static bool settle_partitions(const Position *position);
static Connection look_at_lease(const Position *position);
static void note_other_publisher(void);
static bool another_published(void);
static bool enter_lanes(void);
static bool resume(Position *position);
static bool all_is_mapped(const Position *position);

/*
 * Prepares for use; called once, when the dispatcher starts. `attend` is called
 * while waiting for Redis.
 */
void
redis_session_init(LinkAttend attend)
{
	attend_to = attend;
	traffic_init(attend, prepare_link);
	fences_init();
	lease_init();
}

/* Sets the names of our keys in Redis. The pointer to the instance is kept. */
void
redis_session_set_instance(Instance *ours)
{
	ScriptCall *call = traffic_script();

	instance = ours;
	unique_id_write(&ours->id, call->instance);
	lanes_init(call->instance);
	snprintf(call->lease_key, sizeof(call->lease_key), "outbox:lease:%s", call->instance);
}

/*
 * Connects, takes the lease, reads the fences and resumes where they say. A batch
 * without messages finds out whether the script may run and write.
 */
Connection
redis_session_open(Position *position)
{
	Connection	lease;

	if (!traffic_open())
	{
		lease_note_unseen();
		return CONNECTION_FAILED;
	}
	lanes_begin(traffic_is_clustered());
	if (traffic_is_clustered())
		problem_clear(PROBLEM_EVICTION);
	lease = look_at_lease(position);
	if (lease != CONNECTION_OPEN)
		return lease;
	KILL_POINT("lease_looked_at");
	stream_mapping_begin(traffic_is_clustered());
	if (!enter_lanes() || !fence_claims_take(another_published(), position->published))
		return CONNECTION_FAILED;
	KILL_POINT("fence_claimed");
	destination_unsettle_all();
	if (!traffic_is_clustered() && !settle_partitions(position))
		return CONNECTION_FAILED;
	if (!resume(position) || (traffic_is_clustered() && !settle_partitions(position)))
		return CONNECTION_FAILED;
	KILL_POINT("position_resumed");
	return CONNECTION_OPEN;
}

/*
 * Releases the lease, so that others can publish without waiting for it to run
 * out; for a clean stop.
 */
void
redis_session_release(void)
{
	lease_note_unseen();
	if (!traffic_is_open())
		return;
	redis_lease_release(traffic_redis(), traffic_script()->lease_key);
	traffic_close();
}

/*
 * Keeps the lease, to connect again at once: another server that waits for it must not
 * take its absence for our end.
 */
void
redis_session_close(void)
{
	traffic_close();
}

/* Check whether batches can be sent. */
bool
redis_session_is_open(void)
{
	return traffic_is_open();
}

/* Check whether the link was closed because no transaction could begin, which is no failure of Redis. */
bool
redis_session_gave_up(void)
{
	return traffic_gave_up();
}

/* Returns why the link was closed, or the lease not taken. */
const char *
redis_session_error(void)
{
	return traffic_error();
}

/*
 * Returns why messages of a hash slot cannot be sent while others are, and if `lanes`
 * is not NULL sets it to how many slots that concerns; NULL if there is none.
 */
const char *
redis_session_blocked(int *lanes)
{
	if (lanes)
		*lanes = lanes_blocked();
	return traffic_is_open() ? lanes_why_blocked() : NULL;
}

/*
 * Tries these again; no master gets more time for that than so many milliseconds. If
 * one can be sent to, the links are closed, so that the next connection uses all of
 * them. Must be called only when nothing is under way. Returns false if the links have
 * failed.
 */
bool
redis_session_try_blocked(int patience_ms, bool *freed)
{
	if (!fence_claims_try_blocked(patience_ms, freed))
		return false;
	if (*freed)
		traffic_close();
	return true;
}

/* Does what is due while waiting for Redis. */
void
redis_session_attend(void)
{
	attend_to();
}

/* Returns how long, in microseconds, the fastest batch has taken on this connection. */
int64
redis_session_round_trip(void)
{
	return traffic_round_trip();
}

/* Returns when a batch was answered last, by clock_now(); 0 = never. */
TimestampTz
redis_session_answered_at(void)
{
	return traffic_answered_at();
}

/* Check whether batches are under way. */
bool
redis_session_awaits_answers(void)
{
	return traffic_is_open() && traffic_under_way() > 0;
}

/*
 * Check whether redis_session_renew() may be called now, whatever else is being
 * done with the link.
 */
bool
redis_session_may_renew(void)
{
	return traffic_is_open() && lanes_get(0)->is_ours && traffic_under_way() == 0;
}

/*
 * Renews the lease, and finds out whether Redis is still there and still has our
 * fences. Must be called only when nothing is under way. If the server was set to
 * evict keys, checks whether that has been corrected meanwhile.
 */
bool
redis_session_renew(void)
{
	if (traffic_is_clustered() &&
		(!redis_lease_renew(traffic_redis(), traffic_script()->lease_key) || !redis_cluster_refresh(traffic_redis())))
		return traffic_fail_as_cluster();
	if (!fences_are_reached() || !fences_compare() || (problem_is_set(PROBLEM_EVICTION) && !check_servers()))
		return false;
	return !traffic_is_clustered() || lanes_blocked() > 0 || cluster_partition_layout_compare(traffic_redis(), traffic_script()) ||
		traffic_fail_as_cluster();
}

/*
 * Has messages spread over the partitions that their destinations are to have, when
 * Redis has been told. If it refuses, whether the server or a destination is to
 * blame is told by a batch without messages. In a cluster that waits until all is sent
 * that goes to the former partitions: consumers are told where these end; so it waits for
 * lanes that are blocked. And it waits for calls of outbox_send() that may go there, but
 * not when a connection is opened: no message may be sent before Redis knows where they
 * go. Must be called only when nothing is under way. Returns false if the link is closed.
 */
bool
redis_session_settle_partitions(const Position *position)
{
	if (destination_any_has_new_partitions() && sender_lock_is_held_of_before())
		return true;
	return settle_partitions(position);
}

/* The same without waiting for outbox_send(). */
static bool
settle_partitions(const Position *position)
{
	Lane	   *lane = lanes_get(0);

	if (traffic_is_clustered() && (lanes_blocked() > 0 || !all_is_mapped(position)))
		return true;
	if (traffic_is_clustered())
		return cluster_partition_layout_settle(traffic_redis(), traffic_script(), instance) || traffic_fail_as_cluster();
	return partition_layout_settle(lane->link, traffic_script(), lane, instance) || traffic_fail_as_link(lane->link);
}

/*
 * Has messages that were not sent yet go to the streams that their destinations have
 * now, unless Redis is to be told of partitions first; while lanes are blocked, which that
 * waits for, those of other destinations do not wait. Must be called only when nothing is
 * under way. Returns false if the link is closed.
 */
bool
redis_session_settle_mapping(const Position *position)
{
	if (traffic_is_clustered() && lanes_blocked() == 0 && destination_any_has_new_partitions())
		return true;
	if (stream_mapping_note(position->touched.window))
		return true;
	traffic_give_up();
	return false;
}

/*
 * Checks a server that we have connected to, and loads the script into it. What is missing on
 * one node of a cluster must be known before anything is sent, so that others can be used.
 */
static bool
prepare_link(RedisLink *link)
{
	ScriptCall *call = traffic_script();

	if (!redis_server_check(link, traffic_is_clustered()))
		return false;
	traffic_note_reached();
	return redis_server_load_script(link, call->sha) && (!traffic_is_clustered() || redis_server_may_add(link, call->lease_key));
}

/* Checks the servers once more that lanes are on. */
static bool
check_servers(void)
{
	if (traffic_is_clustered())
		problem_clear(PROBLEM_EVICTION);
	for (int i = 0; i < lanes_count(); i++)
	{
		RedisLink  *link = lanes_get(i)->link;

		if ((i == 0 || link != lanes_get(i - 1)->link) && !redis_server_check(link, traffic_is_clustered()))
			return traffic_fail_as_link(link);
	}
	return true;
}

/*
 * Finds out whether we may publish. If another server published before us, nothing of
 * it can arrive any more after that in a cluster; resume() notes that we publish.
 */
static Connection
look_at_lease(const Position *position)
{
	const char *key = traffic_script()->lease_key;
	const char *last = instance->publisher[0] ? instance->publisher : NULL;
	bool		ours = false;
	bool		read;

	read = redis_lease_look(traffic_redis(), key, last, &ours);
	if (!read || !ours)
		(void) traffic_fail_as_cluster();
	if (!read)
	{
		lease_note_unseen();
		return CONNECTION_FAILED;
	}
	if (!ours)
	{
		note_other_publisher();
		return CONNECTION_HELD;
	}
	if (traffic_is_clustered() && !redis_lease_renew(traffic_redis(), key))
	{
		(void) traffic_fail_as_cluster();
		return CONNECTION_FAILED;
	}
	if (traffic_is_clustered() && last && another_published() && !fence_claims_bar_others(position->published))
		return CONNECTION_FAILED;
	return CONNECTION_OPEN;
}

/*
 * Notes in the database that another server publishes, if it was found to have the lease:
 * when that has expired we take it over like any other server, however often we start
 * meanwhile. A standby need not have this: it has to wait in any case.
 */
static void
note_other_publisher(void)
{
	const char *other = lease_other_owner();

	if (other == NULL || strcmp(instance->publisher, other) == 0 || !transaction_begin("noting who publishes"))
		return;
	instance_publish_as(instance, other);
	transaction_commit_local();
}

/* Check whether another server published before us, or none, as far as the database tells. */
static bool
another_published(void)
{
	return strcmp(instance->publisher, lease_owner()) != 0;
}

/* Takes the lanes into use that are in use on disk, and reads which streams they are of. */
static bool
enter_lanes(void)
{
	if (!traffic_is_clustered())
		return true;
	if (!transaction_begin("reading hash slots"))
	{
		traffic_give_up();
		return false;
	}
	used_lanes_load();
	stream_mapping_load();
	transaction_commit();
	for (int slot = used_lanes_next(0); slot < HASH_SLOTS; slot = used_lanes_next(slot + 1))
		lanes_enter(slot);
	lanes_enter_left_out();
	return true;
}

/*
 * Sets the position to where the fences say, and notes in the database that we publish,
 * for the server that takes over from us. If an era begins there, the fences are claimed
 * in it.
 */
static bool
resume(Position *position)
{
	char		claimed_in[ERA_BYTES];

	strlcpy(claimed_in, era_name(), sizeof(claimed_in));
	if (!transaction_begin("reading the position"))
	{
		traffic_give_up();
		return false;
	}
	if (another_published())
		instance_publish_as(instance, lease_owner());
	resume_position(position, traffic_is_clustered(), era_is_unused());
	transaction_commit();
	if (!traffic_is_open())
		return false;			/* while the standby was waited for */
	if (strcmp(claimed_in, era_name()) != 0 && !fence_claims_renew())
		return false;
	era_use();
	return true;
}

/*
 * Check whether all windows are sent in which messages go where outbox.mapping says, so
 * that the next one can go elsewhere (stream_mapping_note()).
 */
static bool
all_is_mapped(const Position *position)
{
	return used_lanes_next(0) == HASH_SLOTS || position->sent >= position->touched.window;
}
