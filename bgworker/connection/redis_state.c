/*
 * redis_state.c
 *		Whether Redis can be used, since when not, and when it is tried again.
 *
 * Called by the dispatcher. Each change is logged once, and the state is shown
 * in the views. If another server holds the lease, that counts as a Redis that
 * cannot be used. If only some hash slots of a cluster cannot be written to, it can be
 * used; these are tried again at intervals.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "utils/timestamp.h"

#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/redis_state.h"
#include "bgworker/process/report.h"
#include "src/clock.h"
#include "src/problem.h"
#include "src/redis/redis_connect.h"
#include "src/settings.h"

#define RENEW_AFTER_MS		3000	/* idle, until the lease is renewed */
#define FIRST_RETRY_MS		20
#define LAST_RETRY_MS		400 /* Redis is found again within a second */
#define LAST_SLOT_RETRY_MS	1000	/* the same for blocked slots, while
									 * others go on */
#define SHARE_OF_TIME		10	/* which takes at most a tenth of the time */
#define TELL_AFTER_MS		10000	/* a slot that moves is blocked for
									 * moments */

#define CORRECT_LOGIN	"Correct the file of outbox.redis_password_file, or the user and password in outbox.redis_url."
#define CORRECT_TLS		"Correct the certificates, outbox.redis_url, or the settings outbox.redis_tls_ca_file, _cert_file, _key_file and _server_name."

#define CLOSE_SLOT		"The hash slot is being moved to another node. If the move was abandoned, run redis-cli --cluster fix; with Valkey, which may lose keys by that, move the rest by hand."
#define RESTORE_NODES	"Restart the nodes of the cluster that are down, or assign their hash slots to other nodes."

/* What to do about an error of Redis that has these words in it; the first that fits holds. */
static const struct
{
	const char *words;
	const char *advice;
}			remedies[] = {
	{"WRONGPASS", CORRECT_LOGIN},
	{"NOAUTH", CORRECT_LOGIN},
	{"may expect TLS", "Correct the address in outbox.redis_url, or let it begin with \"rediss\" if the server expects TLS."},
	{"expects TLS", "To connect with TLS, let outbox.redis_url begin with \"rediss\"."},
	{"with TLS", CORRECT_TLS},
	{"certificate", CORRECT_TLS},
	{"OOM command", "Trim streams, or raise maxmemory of Redis."},
	{"READONLY ", "Let outbox.redis_url name the master."},
	{"it is a replica", "Let outbox.redis_url name the master."},
	{"MISCONF ", "Repair the disk that Redis writes to."},
	{"TRYAGAIN ", CLOSE_SLOT},
	{"ASK ", CLOSE_SLOT},
	{"is torn between", CLOSE_SLOT},
	{"CLUSTERDOWN ", RESTORE_NODES},
	{"serves the hash slot", RESTORE_NODES},
	{"cluster support disabled", "Let outbox.redis_url begin with \"redis://\": this is a single Redis."},
	{"NOREPLICAS ", "Start the replicas of this master that are down, or give it another one."},
};

static bool is_down;			/* it cannot be used, and the log says so */
static bool lease_is_foreign;	/* another server holds it, and the log says
								 * so */
static uint64 url_tried;		/* hash of the URL that was tried last */
static int	retry_ms;			/* 0 = nothing has failed, and the next try is
								 * at once */
static TimestampTz next_try;
static TimestampTz last_contact;	/* when the lease was taken, or was to be
									 * renewed because nothing was sent */
static TimestampTz blocked_since;	/* some slots cannot be written to; 0 =
									 * all can */
static bool blocked_is_told;	/* the log says so */
static int	slot_retry_ms;
static TimestampTz next_slot_try;

static const char *advice(const char *error);
static void note_blocked(TimestampTz tried_since);
static void tell_of_blocked(const char *why, int slots);
static void end_blocked(void);
static void forget_connection(void);
static void note_connection(void);
static void note_foreign_lease(void);

/*
 * Tries to connect, unless the next try is not due yet. Returns whether
 * messages can be published now.
 */
bool
redis_state_connect(Position *position)
{
	if (clock_ms_until(next_try) > 0)
		return false;

	/* Settings may have been read amid the last try. */
	redis_state_note_settings();
	url_tried = redis_connect_hash(NULL);
	switch (redis_session_open(position))
	{
		case CONNECTION_OPEN:
			note_connection();
			if (position_is_caught_up(position))
				redis_state_note_success();
			return true;
		case CONNECTION_HELD:
			note_foreign_lease();
			return false;
		case CONNECTION_FAILED:
			redis_state_note_failure();
			return false;
	}
	return false;
}

/* Check whether the URL is another one than that which was tried last. */
bool
redis_state_has_new_url(void)
{
	return redis_connect_hash(NULL) != url_tried;
}

/* Notes that the settings were read again: what another URL has led to need not hold for this one, which is tried next. */
void
redis_state_note_settings(void)
{
	if (redis_state_has_new_url() && (retry_ms != 0 || is_down))
		forget_connection();
}

/* Notes that dispatch is off: what was found of Redis until then need not hold any more. */
void
redis_state_note_off(void)
{
	forget_connection();
	problem_clear(PROBLEM_SLOTS);
	problem_clear(PROBLEM_EVICTION);
}

/*
 * Notes that the link has failed; it knows why. After the first failure we try
 * again at once: Redis may have been restarted or have forgotten the script.
 */
void
redis_state_note_failure(void)
{
	TimestampTz now = clock_now();

	ereport(DEBUG1, (errmsg_internal("outbox: %s", redis_session_error())));
	next_try = TimestampTzPlusMilliseconds(now, retry_ms / 2 + pg_prng_uint64_range(&pg_global_prng_state, 0, retry_ms / 2));
	if (retry_ms > 0 && !is_down)
	{
		is_down = true;
		problem_clear(PROBLEM_SLOTS);
		ereport(LOG, (errmsg("outbox: Redis cannot be used: %s", redis_session_error()),
					  errdetail("Messages wait until Redis can be used again.")));
	}
	retry_ms = retry_ms == 0 ? FIRST_RETRY_MS : Min(retry_ms * 2, LAST_RETRY_MS);

	report_redis(REDIS_DOWN, redis_session_error());
	problem_clear(PROBLEM_LEASE);
	problem_set(PROBLEM_REDIS_DOWN, "Redis cannot be used, so messages wait: %s. %s Connecting is retried automatically.",
				redis_session_error(), advice(redis_session_error()));
	report_state(DISPATCHER_WAITING_FOR_REDIS);
}

/* Notes that messages were published, or that there is nothing to publish. */
void
redis_state_note_success(void)
{
	if (lease_is_foreign)
		ereport(LOG, (errmsg("outbox: this server publishes now")));
	else if (is_down)
		ereport(LOG, (errmsg("outbox: Redis can be used again")));
	problem_clear(PROBLEM_REDIS_DOWN);
	lease_is_foreign = false;
	is_down = false;
	retry_ms = 0;
}

/*
 * Check whether the lease should be renewed, for nothing has been answered for a while.
 * That messages are dealt with does not say so: all of them may be deferred.
 */
bool
redis_state_lease_is_due(void)
{
	return redis_session_is_open() &&
		clock_now() - Max(last_contact, redis_session_answered_at()) > RENEW_AFTER_MS * INT64CONST(1000);
}

/* Renews the lease if that is due. */
void
redis_state_renew_lease(void)
{
	if (!redis_state_lease_is_due())
		return;
	last_contact = clock_now();
	if (!redis_session_renew())
		redis_state_note_failure();
}

/*
 * Tries the hash slots again that cannot be written to, if there are any and that is due.
 * If one can be, the links are closed: the next connection uses all of them. Must be
 * called only when nothing is under way.
 */
void
redis_state_try_blocked(void)
{
	TimestampTz begun = clock_now();
	bool		freed;

	if (redis_session_blocked(NULL) == NULL || begun < next_slot_try)
		return;
	if (!redis_session_try_blocked(Max(LAST_SLOT_RETRY_MS, outbox_connect_timeout / 5), &freed))
		redis_state_note_failure();
	else if (!freed)
		note_blocked(begun);
}

/* Check whether messages committed now could be sent at once. */
bool
redis_state_may_send(void)
{
	return redis_session_is_open() || !is_down;
}

/* Returns how long until we must connect, or renew the lease. */
long
redis_state_ms_until_due(void)
{
	if (!redis_session_is_open())
		return clock_ms_until(next_try);
	return redis_session_blocked(NULL) == NULL ? RENEW_AFTER_MS : Min(RENEW_AFTER_MS, clock_ms_until(next_slot_try));
}

/* Returns what to do about an error, as a sentence. */
static const char *
advice(const char *error)
{
	for (int i = 0; i < lengthof(remedies); i++)
	{
		if (strstr(error, remedies[i].words))
			return remedies[i].advice;
	}
	return "Repair Redis, or correct outbox.redis_url.";
}

/* Clears what was found at the last attempt to connect. */
static void
forget_connection(void)
{
	report_redis(REDIS_UNKNOWN, "");
	problem_clear(PROBLEM_REDIS_DOWN);
	problem_clear(PROBLEM_LEASE);
}

/* Notes that we are connected; nothing has been published yet. */
static void
note_connection(void)
{
	last_contact = clock_now();
	report_redis(REDIS_UP, "");
	if (!is_down)
		problem_clear(PROBLEM_REDIS_DOWN);
	problem_clear(PROBLEM_LEASE);
	report_state(DISPATCHER_IDLE);
	note_blocked(last_contact);
}

/* Notes whether there are hash slots that cannot be written to; what was done since then has found that out. */
static void
note_blocked(TimestampTz tried_since)
{
	TimestampTz now = clock_now();
	int			slots;
	const char *why = redis_session_blocked(&slots);

	if (why == NULL)
	{
		end_blocked();
		return;
	}
	if (blocked_since == 0)
	{
		blocked_since = now;
		slot_retry_ms = 0;
	}
	slot_retry_ms = slot_retry_ms == 0 ? FIRST_RETRY_MS : Min(slot_retry_ms * 2, LAST_SLOT_RETRY_MS);
	next_slot_try = now + Max(slot_retry_ms * INT64CONST(1000), SHARE_OF_TIME * (now - tried_since));
	report_redis(REDIS_UP, why);
	if (now - blocked_since > TELL_AFTER_MS * INT64CONST(1000))
		tell_of_blocked(why, slots);
}

/* Tells of slots that have been blocked for a while; `why` is of one of them. */
static void
tell_of_blocked(const char *why, int slots)
{
	if (!blocked_is_told)
		ereport(LOG, (errmsg_plural("outbox: %d hash slot of the Redis Cluster cannot be written to: %s",
									"outbox: %d hash slots of the Redis Cluster cannot be written to: %s", slots, slots, why),
					  errdetail("Messages for other hash slots are sent.")));
	blocked_is_told = true;
	problem_set(PROBLEM_SLOTS,
				ngettext("%d hash slot of the Redis Cluster cannot be written to, so messages for it wait: %s. Messages for other hash slots are sent. %s This is retried automatically.",
						 "%d hash slots of the Redis Cluster cannot be written to, so messages for them wait: %s. Messages for other hash slots are sent. %s This is retried automatically.", slots),
				slots, why, advice(why));
}

/* Notes that all slots can be written to. */
static void
end_blocked(void)
{
	if (blocked_is_told)
		ereport(LOG, (errmsg("outbox: all hash slots of the Redis Cluster can be written to again")));
	blocked_is_told = false;
	blocked_since = 0;
	problem_clear(PROBLEM_SLOTS);
}

/* Notes that Redis works, but another server publishes: we wait for it to stop. */
static void
note_foreign_lease(void)
{
	if (!lease_is_foreign)
		ereport(LOG, (errmsg("outbox: another server publishes for this instance: %s", redis_session_error()),
					  errdetail("Messages wait until this server publishes.")));
	lease_is_foreign = true;
	is_down = true;
	next_try = TimestampTzPlusMilliseconds(clock_now(), LAST_RETRY_MS);

	report_redis(REDIS_UP, redis_session_error());
	problem_clear(PROBLEM_REDIS_DOWN);
	problem_clear(PROBLEM_SLOTS);
	problem_set(PROBLEM_LEASE, "Another server publishes for this instance, so messages wait here: %s. Stop the server that should not publish, or set outbox.dispatch = off there.",
				redis_session_error());
	report_state(DISPATCHER_WAITING_FOR_LEASE);
}
