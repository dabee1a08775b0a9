/*
 * redis_state.c
 *		Whether Redis can be used; connects to it, and renews the lease while nothing is sent.
 *
 * Called by the dispatcher. Each change is logged once, and the state is shown
 * in the views. If another server holds the lease, that counts as a Redis that
 * cannot be used. When it is tried again is in reconnect_pace.c. If only some hash slots of
 * a cluster cannot be written to, it can be used (blocked_slots.c).
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/connection/blocked_slots.h"
#include "bgworker/connection/reconnect_pace.h"
#include "bgworker/connection/redis_hint.h"
#include "bgworker/connection/redis_session.h"
#include "bgworker/connection/redis_state.h"
#include "bgworker/identity/lease.h"
#include "bgworker/process/report.h"
#include "src/clock.h"
#include "src/problem.h"
#include "src/redis/redis_credentials.h"
#include "src/settings.h"

static bool is_down;			/* it cannot be used, and the log says so */
static bool lease_is_foreign;	/* another server holds it, and the log says
								 * so */
static uint64 url_tried;		/* hash of the URL that was tried last */
static TimestampTz last_contact;	/* when the lease was taken, or was to be
									 * renewed because nothing was sent */

static void note_given_up(void);
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
	if (reconnect_pace_ms_until_try() > 0)
		return false;

	/* Settings may have been read during the last try. */
	redis_state_note_settings();
	url_tried = redis_credentials_hash(NULL);
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

/* Check whether the URL differs from that which was tried last. */
bool
redis_state_has_new_url(void)
{
	return redis_credentials_hash(NULL) != url_tried;
}

/* Notes that the settings were read again: what another URL has led to need not hold for this one, which is tried next. */
void
redis_state_note_settings(void)
{
	if (redis_state_has_new_url() && (reconnect_pace_has_failed() || is_down))
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

/* Notes that the link has failed, or was given up; it knows why. */
void
redis_state_note_failure(void)
{
	bool		again = reconnect_pace_has_failed();

	if (redis_session_gave_up())
	{
		note_given_up();
		return;
	}
	ereport(DEBUG1, (errmsg_internal("outbox: %s", redis_session_error())));
	reconnect_pace_note_failure();
	if (again && !is_down)
	{
		is_down = true;
		problem_clear(PROBLEM_SLOTS);
		ereport(LOG, (errmsg("outbox: Redis cannot be used: %s", redis_session_error()),
					  errdetail("Messages wait until Redis can be used again.")));
	}

	report_redis(REDIS_DOWN, redis_session_error());
	problem_clear(PROBLEM_LEASE);
	problem_set(PROBLEM_REDIS_DOWN, "Redis cannot be used, so messages wait: %s. %s Connecting is retried automatically.",
				redis_session_error(), redis_hint(redis_session_error()));
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
	reconnect_pace_note_success();
}

/*
 * Check whether the lease should be renewed, for nothing has been answered for a while.
 * That messages are dealt with does not say so: all of them may be deferred.
 */
bool
redis_state_lease_is_due(void)
{
	return redis_session_is_open() &&
		clock_now() - Max(last_contact, redis_session_answered_at()) > LEASE_RENEW_MS * INT64CONST(1000);
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

/* Tries the hash slots again that cannot be written to, if there are any and that is due. Nothing may be under way. */
void
redis_state_try_blocked(void)
{
	if (!blocked_slots_try())
		redis_state_note_failure();
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
		return reconnect_pace_ms_until_try();
	return blocked_slots_ms_until_try(LEASE_RENEW_MS);
}

/*
 * Notes that no transaction could begin. Redis was reached by then, so a failure before it
 * is over, unless it has lasted: whether batches are taken again is not known.
 */
static void
note_given_up(void)
{
	reconnect_pace_note_given_up();
	if (is_down)
		return;
	report_redis(REDIS_UP, "");
	problem_clear(PROBLEM_REDIS_DOWN);
	report_state(DISPATCHER_IDLE);
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
	blocked_slots_note(last_contact);
}

/* Notes that Redis works, but another server publishes: we wait for it to stop. */
static void
note_foreign_lease(void)
{
	if (!lease_is_foreign)
		ereport(LOG, (errmsg("outbox: another server has been publishing for this instance: %s", redis_session_error()),
					  errdetail("Messages wait until this server publishes.")));
	lease_is_foreign = true;
	is_down = true;
	reconnect_pace_note_foreign_lease();

	report_redis(REDIS_UP, redis_session_error());
	problem_clear(PROBLEM_REDIS_DOWN);
	problem_clear(PROBLEM_SLOTS);
	problem_set(PROBLEM_LEASE, "Another server has been publishing for this instance, so messages wait here: %s. Stop the server that should not publish, or set outbox.dispatch = off there.",
				redis_session_error());
	report_state(DISPATCHER_WAITING_FOR_LEASE);
}
