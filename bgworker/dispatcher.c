/*
 * dispatcher.c
 *		The process that publishes what a database commits.
 *
 * The launcher starts one for each database that has the extension. Its loop:
 * open a window, publish it, keep house, wait. Truth is in the tables and in
 * the fence; it may be killed at any line, and its successor goes on from
 * there.
 *
 * It must never hold a transaction open while it waits, nor wait without
 * attending to what others want of it: shutdown, new settings, the database.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/defer/deferral.h"
#include "bgworker/defer/destination.h"
#include "bgworker/defer/return.h"
#include "bgworker/instance.h"
#include "bgworker/process.h"
#include "bgworker/propagate/propagation.h"
#include "bgworker/propagate/supervision.h"
#include "bgworker/publish/inheritance.h"
#include "bgworker/publish/position.h"
#include "bgworker/publish/publisher.h"
#include "bgworker/publish/redis_session.h"
#include "bgworker/ring/cleanup.h"
#include "bgworker/ring/compaction.h"
#include "bgworker/ring/filter_builder.h"
#include "bgworker/transaction.h"
#include "src/clock.h"
#include "src/compat.h"
#include "src/kill_point.h"
#include "src/log/log.h"
#include "src/problem.h"
#include "src/record/filter.h"
#include "src/settings.h"
#include "src/shared.h"
#include "src/table/relations.h"
#include "src/unique_id.h"
#include "src/wait_event.h"

#define ATTEND_MS			100 /* while somebody may need the database */
#define PAUSE_MS			1	/* between windows under load */
#define TURN_MS				100 /* of sending, until we look around */
#define CLOSE_AFTER_MS		1000	/* idle, until the position is noted */
#define RENEW_AFTER_MS		3000	/* idle, until the lease is renewed */
#define ROUND_MS			1000	/* between rounds of cleanup while segments fill */
#define FIRST_RETRY_MS		20
#define LAST_RETRY_MS		400 /* Redis is found again within a second */

/* Class of the advisory lock that makes us the only one; see src/record/record.c. */
#define DISPATCHER_LOCK_CLASS	0x0b0d

PGDLLEXPORT void outbox_dispatcher_main(Datum database);

static DatabaseShared *shared;
static Instance instance;
static Position position;
static bool settings_are_new;
static bool redis_is_down;		/* and the log says so */
static bool lease_is_foreign;	/* likewise */
static bool is_committed;		/* what the standby may lack: no transaction may
								 * begin */
static int	retry_ms;			/* 0 = the next try is at once */
static TimestampTz next_try;
static TimestampTz last_contact;	/* with Redis */
static uint32 wakeups_seen;		/* before we looked for work last */
static uint32 calls_seen;		/* likewise */
static TimestampTz last_look;	/* for messages */
static TimestampTz turn_ends;	/* of sending */
static TimestampTz last_cleanup;
static bool is_cleaning;		/* records expire in custom record tables */
static uint64 cleanups_seen;	/* when that round began */
static uint64 cleanups_answered;
static TimestampTz last_round;
static int64 last_round_window; /* newest window then */
static bool round_changed;		/* something, so another one may do more */

static void set_up_process(Oid database);
static void become_the_only_one(void);
static void register_process(void);
static void deregister_process(int code, Datum arg);
static void load_state(void);
static void begin_at_start(void);
static void load_instance(void);
static void attend(void);
static void attend_to_standby(void);
static void say_goodbye(void);
static void leave(Farewell farewell) pg_attribute_noreturn();
static bool extension_is_there(void);
static bool database_is_wanted(void);
static void attend_to_refusal(void);
static void reload_if_changed(void);
static bool may_send(void);
static void look_for_extension(void);
static bool look_for_messages(void);
static bool publish(void);
static bool is_wanted(void);
static bool propagate(void);
static void publish_meanwhile(void);
static void listen_for_commits(void);
static bool try_to_connect(void);
static void redis_failed(void);
static void lease_is_held(void);
static void redis_is_up(void);
static void redis_works(void);
static bool keep_house(bool busy);
static bool keep_rings(void);
static void renew_lease(void);
static bool has_news_of_position(void);
static void note_position(void);
static bool cleanup_is_asked_for(void);
static bool round_is_due(void);
static void clean_up(void);
static void go_on_cleaning_up(void);
static bool nothing_is_lost(void);
static bool run_round(bool may_expire);
static void wait_for_work(void);
static long ms_until(TimestampTz when);
static long ms_until_next(TimestampTz last, int interval);
static void report_state(DispatcherState state);

/* Entry point; the argument is the oid of the database. */
void
outbox_dispatcher_main(Datum database)
{
	set_up_process(DatumGetObjectId(database));
	load_state();

	for (;;)
	{
		bool		busy;

		wakeups_seen = pg_atomic_read_u32(&shared->wakeups);
		calls_seen = pg_atomic_read_u32(&shared->calls);
		attend();
		if (settings_are_new)
		{
			/* There may be another Redis, or another password. */
			settings_are_new = false;
			redis_session_release();
		}
		reload_if_changed();
		if (!outbox_dispatch)
		{
			report_state(DISPATCHER_OFF);
			problem_clear(PROBLEM_REDIS_DOWN);
			problem_clear(PROBLEM_LEASE);
			position_close_at_once(&position);
			look_for_extension();
			propagation_attend(&position);
			if (!keep_rings())
				wait_for_work();
			attend_to_refusal();
			continue;
		}
		busy = look_for_messages();

		/* What was opened now may have been enqueued after such a change. */
		reload_if_changed();
		busy |= publish();
		busy |= propagate();
		busy |= keep_house(busy);
		attend_to_refusal();
		if (!busy)
			wait_for_work();
	}
}

static void
set_up_process(Oid database)
{
	/* Connecting reads the settings: a change from now on is another one. */
	shared = shared_find(database, true);
	if (shared)
	{
		pg_atomic_write_u32(&shared->restart, 0);
		pg_atomic_write_u32(&shared->farewell, FAREWELL_NONE);
	}
	process_connect(database);
	if (shared == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("outbox: too many databases"),
				 errdetail("%d can be served.", shared_capacity())));
	become_the_only_one();
	register_process();
	transaction_init(attend_to_standby);
	redis_session_init(attend);
	publisher_init(is_wanted);
	propagation_init(publish_meanwhile);
}

/* A launcher that was restarted may start a second one: that goes. */
static void
become_the_only_one(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, DISPATCHER_LOCK_CLASS);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		proc_exit(0);
}

static void
register_process(void)
{
	before_shmem_exit(deregister_process, (Datum) 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.pid = MyProcPid;
	shared->report.state = DISPATCHER_STARTING;
	shared->report.redis = REDIS_UNKNOWN;
	shared->report.redis_error[0] = '\0';
	LWLockRelease(shared->lock);
	problem_clear_all();
	pg_atomic_write_u32(&shared->dispatcher, MyProcNumber + 1);
}

static void
deregister_process(int code, Datum arg)
{
	supervision_end();
	pg_atomic_write_u32(&shared->dispatcher, 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.pid = 0;
	shared->report.state = DISPATCHER_NONE;
	shared->report.redis = REDIS_UNKNOWN;
	LWLockRelease(shared->lock);
	problem_clear_all();
	problem_hold(PROBLEM_NO_DISPATCHER, true);
	ConditionVariableBroadcast(&shared->progress);
	shared_wake_launcher();
}

/* Reads where we are; leaves if there is nothing here for us. */
static void
load_state(void)
{
	KILL_POINT("dispatcher_registered");
	begin_at_start();
	rings_reload();
	load_instance();

	/*
	 * Windows of our predecessor may be committed here but not on the
	 * synchronous standby. Waiting for something newer waits for them.
	 */
	(void) transaction_execute("UPDATE outbox.instance SET database = database", 0, NULL, NULL, NULL);
	KILL_POINT("start_written");
	transaction_commit();
	KILL_POINT("start_committed");

	begin_at_start();
	destination_load();
	deferral_load();
	log_note_ids();
	transaction_commit();
	cleanups_answered = pg_atomic_read_u64(&shared->cleanups_done);
	report_state(DISPATCHER_IDLE);
}

static void
begin_at_start(void)
{
	while (!transaction_begin("starting"))
		attend_to_refusal();
}

static void
load_instance(void)
{
	instance_load(&instance);
	position_load(&position, instance.first_window);
	if (instance.is_copy)
	{
		(void) transaction_execute("DELETE FROM outbox.deferred", 0, NULL, NULL, NULL);
		(void) transaction_execute("DELETE FROM outbox.loss", 0, NULL, NULL, NULL);
		inheritance_skip_foreign(&position, &instance);
		unique_id_random(&instance.id);
		instance_become(&instance, position.first_window);
		ereport(LOG, (errmsg("outbox: this database is a copy; what was pending is sent by its original")));
	}
	redis_session_set_instance(&instance);
	propagation_set_instance(&instance);
}

/*
 * Does what others want of this process. Called wherever it waits; never
 * inside of a transaction. Does not return if it must go.
 */
static void
attend(void)
{
	if (ProcDiePending)
		say_goodbye();
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		settings_are_new = true;
	}
	if (pg_atomic_read_u32(&shared->restart) != 0 || database_is_wanted())
		leave(FAREWELL_ASKED);
}

/*
 * The same while a commit waits for the standby, for as long as that is away: we
 * live, so the lease stays ours, unless dispatch is off.
 */
static void
attend_to_standby(void)
{
	is_committed = true;
	attend();
	if (outbox_dispatch && redis_session_may_renew())
		renew_lease();
	is_committed = false;
}

/* For a clean stop: whoever publishes next need not wait, nor do anything again. */
static void
say_goodbye(void)
{
	redis_session_release();
	if (is_committed)
		return;

	/* It cannot wait, and we must not die in the midst of it. */
	HOLD_INTERRUPTS();
	position_close_at_once(&position);
	RESUME_INTERRUPTS();
}

static void
leave(Farewell farewell)
{
	if (farewell == FAREWELL_ASKED)
		say_goodbye();
	redis_session_release();

	/* A commit that still took us for alive may have created the extension. */
	pg_atomic_write_u32(&shared->dispatcher, 0);
	if (farewell == FAREWELL_NO_EXTENSION && extension_is_there())
		farewell = FAREWELL_ASKED;
	if (farewell == FAREWELL_NO_EXTENSION)
		filters_forget_all(shared);
	pg_atomic_write_u32(&shared->farewell, farewell);
	proc_exit(0);
}

static bool
extension_is_there(void)
{
	bool		there;

	StartTransactionCommand();
	there = OidIsValid(get_extension_oid("outbox", true));
	CommitTransactionCommand();
	return there;
}

/*
 * Whether a command holds the lock on our database and waits for everybody to
 * leave it. Our successor will wait for the same lock.
 *
 * Anybody gets that lock for a moment, for DROP DATABASE takes it before it asks
 * for rights, and may wait for it as long as somebody else holds another one.
 * So we look at nobody who merely waits, and only while ddl.c says that somebody
 * with the right to it is there.
 */
static bool
database_is_wanted(void)
{
	LOCKTAG		tag;
	int			holders;

	if (pg_atomic_read_u32(&shared->askers) == 0)
		return false;
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	pfree(GetLockConflicts(&tag, RowExclusiveLock, &holders));
	return holders > 0;
}

/* A transaction could not begin: leaves if our extension is gone, else waits. */
static void
attend_to_refusal(void)
{
	switch (transaction_refusal())
	{
		case REFUSAL_NONE:
			return;
		case REFUSAL_GONE:
			leave(FAREWELL_NO_EXTENSION);
			break;
		case REFUSAL_ANOTHER:
			leave(FAREWELL_ASKED);
			break;
		case REFUSAL_BUSY:
			(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ATTEND_MS, wait_event_of(OUTBOX_WAIT_DISPATCHER));
			attend();
			break;
	}
}

/* Reads again what administrators have changed; between windows. */
static void
reload_if_changed(void)
{
	if (pg_atomic_read_u32(&shared->reload) == 0)
		return;
	pg_atomic_write_u32(&shared->reload, 0);
	if (!transaction_begin("reading what was changed"))
	{
		pg_atomic_write_u32(&shared->reload, 1);
		return;
	}
	destination_load();
	deferral_load();
	transaction_commit();
}

/* Whether what is committed now could be sent at once. */
static bool
may_send(void)
{
	return outbox_dispatch && !destination_all_paused() && (redis_session_is_open() || !redis_is_down);
}

/*
 * While dispatch is off no transaction of ours would notice that the extension
 * was dropped.
 */
static void
look_for_extension(void)
{
	if (ms_until_next(last_look, outbox_poll_interval) > 0)
		return;
	last_look = clock_now();
	if (transaction_begin("looking for the extension"))
		transaction_commit();
	attend_to_refusal();
}

/*
 * Opens a window if there is something new. While nothing may be sent, or older
 * messages are, that is done by the clock only, so that windows stay small but do
 * not become many.
 */
static bool
look_for_messages(void)
{
	bool		opened = false;

	if (!(may_send() && position_is_caught_up(&position)) && ms_until_next(last_look, outbox_poll_interval) > 0)
		return false;
	last_look = clock_now();

	/* Looping at once would take a fifth of the callers' throughput. */
	if (position.opened_at != 0 &&
		clock_now() - position.opened_at < PAUSE_MS * INT64CONST(1000))
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS, wait_event_of(OUTBOX_WAIT_DISPATCHER));

	if (position_is_caught_up(&position) && redis_session_is_open() && !destination_all_paused())
		opened = return_due_messages();
	opened |= position_open_window(&position);
	return opened;
}

/*
 * Publishes what is opened, if Redis lets us, for a while: a backlog must not
 * keep us from all else. Says whether anything was.
 */
static bool
publish(void)
{
	bool		published = false;

	if (!redis_session_is_open() && !try_to_connect())
		return false;
	if (destination_all_paused())
	{
		report_state(DISPATCHER_PAUSED);
		problem_clear(PROBLEM_REDIS_DOWN);
		return false;
	}
	turn_ends = TimestampTzPlusMilliseconds(clock_now(), TURN_MS);
	while (!position_is_caught_up(&position) && !(published && is_wanted()))
	{
		Progress	progress;

		report_state(DISPATCHER_PUBLISHING);
		progress = publisher_publish_next(&position);
		if (progress == PUBLISH_FAILED)
		{
			redis_failed();
			return published;
		}
		published = true;

		/* The link may have failed when all had arrived: then nothing is left that could go through. */
		if (publisher_makes_progress() || position_is_caught_up(&position))
			redis_works();
		if (progress == PUBLISHED_PART)
			break;
		KILL_POINT("window_advanced");
		if (position_is_caught_up(&position))
			return_end_probes();
		ConditionVariableBroadcast(&shared->progress);
		attend();
	}
	if (position_is_caught_up(&position))
		report_state(DISPATCHER_IDLE);
	return published;
}

/* Whether something else is to be done before more is sent. */
static bool
is_wanted(void)
{
	return settings_are_new || pg_atomic_read_u32(&shared->reload) != 0 || clock_now() >= turn_ends;
}

/* Hands receipts on; whoever commits while a store is waited for wakes us. */
static bool
propagate(void)
{
	bool		propagated;

	listen_for_commits();
	propagated = propagation_run(&position);
	pg_atomic_write_u32(&shared->asleep, 0);
	return propagated;
}

/*
 * What goes on while propagation.c waits for a store: everything else but
 * cleaning up. Other settings are left to the main loop.
 */
static void
publish_meanwhile(void)
{
	pg_atomic_write_u32(&shared->asleep, 0);
	attend();
	if (settings_are_new || !outbox_dispatch)
		return;
	wakeups_seen = pg_atomic_read_u32(&shared->wakeups);
	reload_if_changed();
	(void) look_for_messages();
	if (publish())
		SetLatch(MyLatch);		/* there may be more */
	propagation_attend(&position);
	renew_lease();
	listen_for_commits();
}

/*
 * Who commits from now on sets our latch; who did so since we looked last is in
 * the count. While nothing may be sent a commit need not wake us.
 */
static void
listen_for_commits(void)
{
	if (!may_send())
		return;
	(void) pg_atomic_exchange_u32(&shared->asleep, 1);
	if (pg_atomic_read_u32(&shared->wakeups) != wakeups_seen)
		SetLatch(MyLatch);
}

static bool
try_to_connect(void)
{
	if (ms_until(next_try) > 0)
		return false;
	switch (redis_session_open(&position))
	{
		case CONNECTION_OPEN:
			redis_is_up();
			if (position_is_caught_up(&position))
				redis_works();
			return true;
		case CONNECTION_HELD:
			lease_is_held();
			return false;
		case CONNECTION_FAILED:
			redis_failed();
			return false;
	}
	return false;
}

/*
 * The link is closed and says why. The first time after success we try again
 * at once: Redis may just have been restarted or have forgotten the script.
 */
static void
redis_failed(void)
{
	TimestampTz now = clock_now();

	ereport(DEBUG1, (errmsg_internal("outbox: %s", redis_session_error())));
	next_try = TimestampTzPlusMilliseconds(now, retry_ms / 2 + pg_prng_uint64_range(&pg_global_prng_state, 0, retry_ms / 2));
	if (retry_ms > 0 && !redis_is_down)
	{
		redis_is_down = true;
		ereport(LOG, (errmsg("outbox: Redis cannot be used, messages wait: %s", redis_session_error())));
	}
	retry_ms = retry_ms == 0 ? FIRST_RETRY_MS : Min(retry_ms * 2, LAST_RETRY_MS);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.redis = REDIS_DOWN;
	strlcpy(shared->report.redis_error, redis_session_error(), sizeof(shared->report.redis_error));
	LWLockRelease(shared->lock);
	problem_clear(PROBLEM_LEASE);
	problem_set(PROBLEM_REDIS_DOWN, "Redis cannot be used, messages wait: %s. Mend Redis, or correct outbox.redis_url; it is tried again by itself.",
				redis_session_error());
	report_state(DISPATCHER_WAITING_FOR_REDIS);
}

/* Redis works, but another server publishes: wait for it to stop. */
static void
lease_is_held(void)
{
	if (!lease_is_foreign)
		ereport(LOG, (errmsg("outbox: another server publishes for this instance, messages wait"),
					  errdetail("Lease: %s.", redis_session_error())));
	lease_is_foreign = true;
	redis_is_down = true;
	next_try = TimestampTzPlusMilliseconds(clock_now(), LAST_RETRY_MS);

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.redis = REDIS_UP;
	strlcpy(shared->report.redis_error, redis_session_error(), sizeof(shared->report.redis_error));
	LWLockRelease(shared->lock);
	problem_clear(PROBLEM_REDIS_DOWN);
	problem_set(PROBLEM_LEASE, "Another server publishes for this instance, messages wait here: the lease is %s. Stop the one that should not publish, or set outbox.dispatch = off there.",
				redis_session_error());
	report_state(DISPATCHER_WAITING_FOR_LEASE);
}

/* We are connected, but nothing has been published yet. */
static void
redis_is_up(void)
{
	last_contact = clock_now();
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.redis = REDIS_UP;
	shared->report.redis_error[0] = '\0';
	LWLockRelease(shared->lock);
	if (!redis_is_down)
		problem_clear(PROBLEM_REDIS_DOWN);
	problem_clear(PROBLEM_LEASE);
	report_state(DISPATCHER_IDLE);
}

/* Something went through, or there is nothing to publish. */
static void
redis_works(void)
{
	if (lease_is_foreign)
		ereport(LOG, (errmsg("outbox: this server publishes now")));
	else if (redis_is_down)
		ereport(LOG, (errmsg("outbox: Redis can be used again")));
	problem_clear(PROBLEM_REDIS_DOWN);
	lease_is_foreign = false;
	redis_is_down = false;
	retry_ms = 0;
	last_contact = clock_now();
}

/*
 * What is done when there is nothing to publish, or by the clock. Says whether
 * there is more of it.
 */
static bool
keep_house(bool busy)
{
	TimestampTz now = clock_now();
	bool		more;

	if (!busy && position_is_caught_up(&position) && has_news_of_position() &&
		redis_session_is_open() && now - position.opened_at > CLOSE_AFTER_MS * INT64CONST(1000))
		note_position();

	if (!busy)
		renew_lease();

	if (is_cleaning)
		go_on_cleaning_up();
	if ((!is_cleaning && cleanup_is_asked_for()) ||
		(outbox_cleanup_interval >= 0 && ms_until_next(last_cleanup, outbox_cleanup_interval) <= 0))
		clean_up();
	more = keep_rings();
	return more;
}

/*
 * What goes on with dispatch off as well: records are written all the same. Says
 * whether there is more of it.
 */
static bool
keep_rings(void)
{
	bool		more;

	if (round_is_due())
		(void) run_round(false);
	more = compaction_step();
	more |= filter_builder_step();
	return more;
}

/* Says that we are still there, if nothing else has for a while. */
static void
renew_lease(void)
{
	TimestampTz now = clock_now();

	if (!redis_session_is_open() || now - last_contact <= RENEW_AFTER_MS * INT64CONST(1000))
		return;
	last_contact = now;
	if (!redis_session_renew())
		redis_failed();
}

/* Whether we know more of where we are than the newest window says. */
static bool
has_news_of_position(void)
{
	return position.opened.published < position.published ||
		position.opened.propagated < position.propagated;
}

/*
 * Writes down on both sides that all is published: the rows that the fence
 * names are not kept for ever.
 */
static void
note_position(void)
{
	if (position_close(&position) && !redis_session_move_fence(position.opened.number, &position.opened.uuid))
		redis_failed();
	KILL_POINT("closing_fence_moved");
}

static bool
cleanup_is_asked_for(void)
{
	return pg_atomic_read_u64(&shared->cleanups_asked) != cleanups_answered;
}

/* Whether a segment is full, or what the last round began may go on. */
static bool
round_is_due(void)
{
	if (ms_until_next(last_round, ROUND_MS) > 0)
		return false;
	last_round = clock_now();
	return round_changed || position.opened.number != last_round_window || cleanup_is_due();
}

static void
clean_up(void)
{
	uint64		asked = pg_atomic_read_u64(&shared->cleanups_asked);

	if (!run_round(true))
		return;
	last_cleanup = clock_now();

	/* What hangs in a custom record table must not keep our own segments. */
	if (is_cleaning)
		return;
	cleanups_answered = cleanups_seen = asked;
	is_cleaning = true;
	if (nothing_is_lost())
		supervision_ask_for_expiry();
	go_on_cleaning_up();
}

/* The bookkeeper may take long for its part of a round. */
static void
go_on_cleaning_up(void)
{
	if (!supervision_expiry_has_ended())
		return;
	is_cleaning = false;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.last_cleanup = GetCurrentTimestamp();
	LWLockRelease(shared->lock);
	pg_atomic_write_u64(&shared->cleanups_done, cleanups_seen);
	ConditionVariableBroadcast(&shared->progress);
}

/*
 * Whether those that we told of messages and ids are there and have them still,
 * so that we need not keep them. Where no message was ever enqueued nobody
 * needs a Redis: the database may be the store of others.
 */
static bool
nothing_is_lost(void)
{
	bool		redis_has_all = redis_session_is_open() && position.sent >= position.published;

	return (redis_has_all || position.opened.messages == 0) && propagation_is_sound();
}

static bool
run_round(bool may_expire)
{
	CleanupLimits limits = {
		.may_empty = nothing_is_lost(),
		.may_expire = may_expire
	};

	last_round = clock_now();
	last_round_window = position.opened.number;
	compaction_wake();
	return cleanup_run(&position, &limits, &round_changed);
}

/* Sleeps until woken, or until something is due. */
static void
wait_for_work(void)
{
	long		ms = outbox_poll_interval;

	if (outbox_dispatch)
	{
		if (!redis_session_is_open())
			ms = Min(ms, ms_until(next_try));
		else
			ms = Min(ms, RENEW_AFTER_MS);
		if (outbox_cleanup_interval >= 0)
			ms = Min(ms, ms_until_next(last_cleanup, outbox_cleanup_interval));
		if (has_news_of_position())
			ms = Min(ms, CLOSE_AFTER_MS);
		ms = Min(ms, propagation_ms_until_due(&position));
		if (redis_session_is_open() && !destination_all_paused())
			ms = Min(ms, return_ms_until_due());
	}
	else
		ms = Min(ms, supervision_ms_until_due());
	if (pg_atomic_read_u32(&shared->askers) != 0)
		ms = Min(ms, ATTEND_MS);

	/* Who wants something else of us than sending is in a count of its own. */
	if (pg_atomic_read_u32(&shared->calls) != calls_seen)
		return;
	listen_for_commits();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(ms, 1), wait_event_of(OUTBOX_WAIT_DISPATCHER));
	ResetLatch(MyLatch);
	pg_atomic_write_u32(&shared->asleep, 0);
}

static long
ms_until(TimestampTz when)
{
	return TimestampDifferenceMilliseconds(clock_now(), when);
}

/* How long until what is done every `interval` ms is due again. */
static long
ms_until_next(TimestampTz last, int interval)
{
	return ms_until(TimestampTzPlusMilliseconds(last, interval));
}

static void
report_state(DispatcherState state)
{
	if (shared->report.state == state)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.state = state;
	LWLockRelease(shared->lock);
}
