/*
 * redis_lease.c
 *		The lease as Redis has it: looks at it, renews it and releases it.
 *
 * Called by redis_session.c; in a Redis Cluster also by traffic.c and
 * cluster_partition_layout.c before they send. Who may take it is decided in lease.c.
 *
 * In a single Redis each batch checks and renews the lease (publish.lua). In a cluster the
 * batches are in other slots than the lease, so time takes the place of that: nothing may be sent unless a
 * renewal was sent, and succeeded, less than a life of the lease ago. As long as that
 * holds, no other server can have seen it expire. The moment counts at which the
 * renewal was sent, for Redis cannot have run it before, and the clock goes on while
 * the machine sleeps.
 *
 *	 died after a renewal		the lease expires by itself
 *	 frozen, then continued		the time check fails; what it had handed to the
 *								system before arrives late, and is refused by the
 *								fences of the lanes, which the other server has claimed
 *	 the clock of Redis is		Redis would keep a lease until the clock has caught up: who
 *	 set back, or a replica		waits for it has it expire in its time. A server that is
 *	 whose clock is behind		alive has renewed it by then
 *	 has become the master
 *	 the lease is lost (a failover)	others wait for outbox.takeover_delay all the same;
 *								the next renewal writes it again, unless another server
 *								has it
 *
 * What is done before anything is sent may take longer than the lease lives: masters that
 * do not answer are waited for, or thousands of streams are asked where they end. So
 * whoever is about to send keeps the lease (redis_lease_keep()), and does not only look
 * at the time: one that has expired is ours again if nobody has it.
 *
 * It must never be renewed by anything but its own script: the answer of that is what
 * the time is counted for.
 */
#include "postgres.h"

#include "bgworker/identity/redis_lease.h"
#include "bgworker/identity/lease.h"
#include "bgworker/identity/lease.lua.h"
#include "bgworker/identity/release.lua.h"
#include "src/clock.h"

static TimestampTz renewed;		/* when the last renewal that succeeded was
								 * sent, by clock_with_sleep(); 0 = never */

static void shorten(RedisCluster *redis, const char *key);
static bool is_due(void);
static bool is_valid(void);

/*
 * Reads the lease, and sets *may_be_taken as lease_may_be_taken() says. If we may not publish,
 * redis_cluster_error() says why. Returns false if the lease could not be read.
 */
bool
redis_lease_look(RedisCluster *redis, const char *key, const char *last_owner, bool *may_be_taken)
{
	redisReply *reply = redis_cluster_call(redis, 2, (const char *[]) {"GET", key});
	bool		read = reply && (reply->type == REDIS_REPLY_NIL || reply->type == REDIS_REPLY_STRING);
	char		reason[256];

	renewed = 0;
	if (read)
		*may_be_taken = lease_may_be_taken(reply->type == REDIS_REPLY_STRING ? reply->str : NULL, last_owner,
										   reason, sizeof(reason));
	else if (reply)
		redis_cluster_fail_with_reply(redis, reply, "could not read the lease");
	if (reply)
		freeReplyObject(reply);
	if (read && !*may_be_taken)
	{
		shorten(redis, key);
		redis_cluster_fail(redis, reason);
	}
	return read;
}

/* Takes the lease, or renews it. Returns false if another server has it, or it cannot be written. */
bool
redis_lease_renew(RedisCluster *redis, const char *key)
{
	TimestampTz sent = clock_with_sleep();
	char		life[12];
	redisReply *reply;
	bool		done;

	snprintf(life, sizeof(life), "%d", LEASE_MS);
	reply = redis_cluster_call(redis, 6, (const char *[]) {"EVAL", lease_script, "1", key, lease_value(), life});
	done = reply && reply->type == REDIS_REPLY_STATUS;
	if (done)
		renewed = sent;
	else if (reply)
		redis_cluster_fail_with_reply(redis, reply, "could not renew the lease");
	if (reply)
		freeReplyObject(reply);
	return done;
}

/*
 * Renews the lease if that is due. Returns true if no other server can have it yet: only
 * then anything may be sent; otherwise redis_cluster_error() says why not.
 */
bool
redis_lease_keep(RedisCluster *redis, const char *key)
{
	if (is_due() && !redis_lease_renew(redis, key))
		return false;
	if (is_valid())
		return true;
	redis_cluster_fail(redis, "the lease could not be renewed in time");
	return false;
}

/*
 * Releases the lease, so that others need not wait until it expires; for a clean stop.
 * Does not wait. If it does not arrive where the lease is, that expires.
 */
void
redis_lease_release(RedisCluster *redis, const char *key)
{
	redis_cluster_tell(redis, key, 5, (const char *[]) {"EVAL", release_script, "1", key, lease_value()});
	renewed = 0;
}

/*
 * Lets the lease of another server live no longer than one that is renewed now. Redis may
 * refuse that: the permission may be missing.
 */
static void
shorten(RedisCluster *redis, const char *key)
{
	char		life[12];
	redisReply *reply;

	snprintf(life, sizeof(life), "%d", LEASE_MS);
	reply = redis_cluster_call(redis, 4, (const char *[]) {"PEXPIRE", key, life, "LT"});
	if (reply)
		freeReplyObject(reply);
}

/* Check whether a third of the life of the lease is over. */
static bool
is_due(void)
{
	return clock_with_sleep() - renewed > LEASE_MS * INT64CONST(1000) / 3;
}

/* Check whether the lease cannot have expired. */
static bool
is_valid(void)
{
	return clock_with_sleep() - renewed < LEASE_MS * INT64CONST(1000);
}
