/*
 * wakeup.pml
 *		Promela model of the wake-up: a commit is counted, the dispatcher that sleeps
 *		is woken, and the launcher starts one where there is none.
 *
 * Sessions commit a message each; the dispatcher looks for messages, sends them, and
 * sleeps without looking again if no commit was counted since its last look; the
 * launcher keeps it alive. Any wait but that of the sleep itself (for a lock, a
 * standby, a store, Redis) may reset the latch. What is sent and how is
 * dispatch.pml: here Redis is there or not, and a window is sent as a whole.
 * Each step carries the name of the C function that it stands for. Every read of
 * shared state and every change of it is a step of its own. A broken variant is
 * chosen by defining its name.
 *
 * Time is not modelled. The dispatcher may look by the clock at any time that it is
 * awake, but never must; it sleeps until its latch is set or Redis is to be tried again.
 * So what needs a time-out shows when nothing moves any more: then everything that is
 * committed must be in Redis, unless that is away, all is paused, or dispatch is off.
 * With STALLS a session may stop for good right behind its commit: only then may one
 * time-out be needed.
 */
#ifndef MESSAGES
#define MESSAGES	2
#endif
#ifndef REDIS_LOSSES
#define REDIS_LOSSES	0		/* times that Redis goes away */
#endif
#ifndef PAUSES
#define PAUSES		0			/* outbox_pause() and outbox_resume() */
#endif
#ifndef SWITCHES
#define SWITCHES	0			/* outbox.dispatch = off, and on again */
#endif
#ifndef ENDS
#define ENDS		0			/* pg_terminate_backend() of the dispatcher, or
								 * a command that needs the database */
#endif
#ifndef CRASHES
#define CRASHES		0			/* of PostgreSQL, or of one process */
#endif
#ifndef ASYNC
#define ASYNC		0			/* 1: a crash may undo what no window has */
#endif
#ifndef DROPS
#define DROPS		0			/* DROP EXTENSION that is rolled back */
#endif
#ifndef STORE
#define STORE		0			/* 1: the dispatcher may wait for a store */
#endif
#ifndef STALLS
#define STALLS		0			/* sessions that stop behind their commit */
#endif
#ifndef CREATED
#define CREATED		0			/* 1: CREATE EXTENSION comes first */
#endif
#ifndef COPIED
#define COPIED		0			/* 1: a database that is copied, and has a
								 * message from the beginning */
#endif

#ifndef CLOCK
#define CLOCK		0			/* 1: the dispatcher may look because of the time */
#endif
#ifndef ROLLBACKS
#define ROLLBACKS	0			/* 1: a session may wake it for nothing */
#endif

/* Otherwise one is at work from the beginning. */
#define STARTS		(ENDS || CRASHES || CREATED || COPIED)

#define BIT(id)		(1 << ((id) - 1))
#define ALL			((1 << MESSAGES) - 1)

/* ------------------------------------------------------------------------
 * What is on disk, and in Redis
 * ------------------------------------------------------------------------ */

byte committed;					/* visible to every snapshot from now on */
byte opened;					/* of these, what windows have */
byte sent;
bool has_extension = !CREATED;
bool has_database = !COPIED;
bool is_dropping;				/* the lock of DROP EXTENSION is held, or waited for */
bool pause_row;					/* of outbox.destination */
bool dispatch_file = true;		/* of postgresql.conf */
bool redis = true;

/* ------------------------------------------------------------------------
 * Shared memory
 * ------------------------------------------------------------------------ */

bool has_entry = !COPIED;
byte dispatcher = !STARTS;		/* the process that is registered; 0 = none */
byte wakeups;
byte calls;
bool asleep;
bool wanted = (STARTS && !COPIED);
bool reload;
bool left_without_extension;	/* its farewell */

byte launcher_calls;
bool launcher_latch = STARTS;

/* ------------------------------------------------------------------------
 * Processes
 * ------------------------------------------------------------------------ */

byte process = !STARTS;			/* number of the dispatcher that was started last */
bool is_alive = !STARTS;			/* ... and has not ended */
bool has_child = !STARTS;			/* the launcher has a handle */
bool latch;						/* of the dispatcher */
bool hup;						/* it got SIGHUP */
bool settings_are_new;			/* it has read them amid a wait */
bool term;						/* it is to end */
bool link_is_good;				/* Redis has not gone away since it connected */

byte crashed;					/* who has to notice: sessions, and the others */
#define CRASH_DISPATCHER	64
#define CRASH_LAUNCHER		128
#define HAS_CRASHED(who)	((crashed & (who)) != 0)

bool time_is_out;				/* the sleep of the dispatcher ends by its time-out */
bool was_needed;				/* ... which happened */
byte stalls;

/* SetLatch(): of a process that has ended it is lost, or wakes another one in vain. */
#define SET_LATCH(number)	latch = (latch || (is_alive && number == process))

/* entry_init() */
#ifdef ENTRY_NOT_WANTED
#define NEW_IS_WANTED	false
#else
#define NEW_IS_WANTED	true
#endif

/* shared_find(): under a lock */
inline shared_find(is_wanted)
{
	atomic {
		if
		:: !has_entry ->
			has_entry = true;
			wanted = (NEW_IS_WANTED || is_wanted)
		:: else
		fi
	}
}

/* shared_wake_launcher() */
inline shared_wake_launcher()
{
	launcher_calls++;
	launcher_latch = true
}

/* shared_wake_dispatcher() */
inline shared_wake_dispatcher()
{
	d = dispatcher;
	calls++;
	if
	:: d != 0 -> SET_LATCH(d)
	:: d == 0 ->
#ifdef LAUNCHER_WOKEN_FIRST
		shared_wake_launcher();
		wanted = true
#else
		wanted = true;
		shared_wake_launcher()
#endif
	fi;
	d = 0
}

/* shared_tell_dispatcher() */
inline shared_tell_dispatcher()
{
	d = dispatcher;
	if
	:: d == 0 -> shared_wake_dispatcher()
	:: d != 0 ->
		d = 0;
#ifdef ASLEEP_READ_FIRST
		was_asleep = asleep;
		wakeups++;
		if
		:: was_asleep ->
#else
		wakeups++;
		if
		:: asleep ->
#endif
			atomic { was_asleep = asleep; asleep = false };
			if
			:: was_asleep -> d = dispatcher; SET_LATCH(d)
			:: !was_asleep
			fi
#ifdef ASLEEP_READ_FIRST
		:: !was_asleep
#else
		:: !asleep
#endif
		fi;
		d = 0; was_asleep = false
	fi
}

/* ------------------------------------------------------------------------
 * Sessions: log_append.c, wakeup.c. COMMIT PREPARED does the same (utility_hook.c).
 * ------------------------------------------------------------------------ */

proctype session(byte id)
{
	byte d;
	bool was_asleep;

start:
	{
		if
		:: true -> goto done		/* nothing more is ever committed */
		:: has_database && has_extension && !is_dropping -> skip
		fi;
		shared_find(false);			/* wakeup_at_commit(): shared_mine() */
#ifdef COUNTED_BEFORE_COMMIT
		shared_tell_dispatcher();
		committed = committed | BIT(id);
#else
		if
		:: committed = committed | BIT(id)
#if ROLLBACKS
		:: true						/* the message was in a savepoint that was rolled back */
#endif
		fi;
#if STALLS
		if
		:: atomic { stalls < STALLS && (committed & BIT(id)) != 0 -> stalls++ }; goto done
		:: true
		fi;
#endif
		shared_tell_dispatcher();
#endif
done:
		skip
	} unless {
		atomic { HAS_CRASHED(BIT(id)) ->
			crashed = crashed & ~BIT(id);
			d = 0; was_asleep = false;
			if
			:: (committed & BIT(id)) == 0 -> goto start		/* it, or a prepared transaction, comes again */
			:: (committed & BIT(id)) != 0
			fi
		}
	}
}

/* A session that only reads, or anything that asks for the entry of its database. */
#if COPIED
active proctype reader()
{
	has_database;
	shared_find(false)
}

/* CREATE DATABASE ... TEMPLATE: utility_hook.c, wakeup_launcher_at_commit() */
active proctype copier()
{
	atomic { committed = BIT(1); has_database = true };
	shared_wake_launcher()
}
#endif

/* ------------------------------------------------------------------------
 * Administrators
 * ------------------------------------------------------------------------ */

#if CREATED
/* outbox.shared_wake_launcher() */
active proctype creator()
{
	byte d;
	bool was_asleep;

	shared_find(false);
	has_extension = true;
	shared_tell_dispatcher()
}
#endif

#if PAUSES
/* delivery_triggers.c: wakeup_reload_at_commit() */
inline tell_of_reload()
{
#ifdef RELOAD_SET_LAST
	shared_wake_dispatcher();
	reload = true
#else
	reload = true;
	shared_wake_dispatcher()
#endif
}

active proctype pauser()
{
	byte d, n;

	do
	:: n < PAUSES ->
		n++;
		pause_row = true;
		tell_of_reload();
		pause_row = false;
		tell_of_reload()
	:: true -> break
	od
}
#endif

#if SWITCHES
active proctype switcher()
{
	byte n;

	do
	:: n < SWITCHES ->
		n++;
		dispatch_file = false;
		atomic { hup = true; SET_LATCH(process) };
		dispatch_file = true;
		atomic { hup = true; SET_LATCH(process) }
	:: true -> break
	od
}
#endif

#if DROPS
/* DROP EXTENSION waits for its lock, has it, and is rolled back. */
active proctype dropper()
{
	byte n;

	do
	:: n < DROPS -> n++; is_dropping = true; is_dropping = false
	:: true -> break
	od
}
#endif

/* ------------------------------------------------------------------------
 * The launcher: launcher.c
 * ------------------------------------------------------------------------ */

/* A wait for a lock on pg_database, or for one of its pages. */
inline launcher_waits()
{
	if
	:: launcher_latch -> launcher_latch = false
	:: true
	fi
}

active proctype launcher()
{
	byte seen;

start:
	{
		skip;
		do
#ifndef LAUNCHER_NOT_COUNTED
		:: launcher_calls != seen -> goto round
		:: launcher_calls == seen ->
#else
		:: true ->
#endif
			/* By its latch; by the clock while a dispatcher starts or has ended. */
end_sleep:	if
			:: launcher_latch
			:: has_child && !is_alive
			fi;
round:		seen = launcher_calls;
			launcher_latch = false;
			/* read_databases(), note_database() */
			if
			:: has_database -> shared_find(true)
			:: !has_database
			fi;
			launcher_waits();

			/* look_after() */
			if
			:: has_child && !is_alive ->		/* handle_end() */
				atomic {
					has_child = false;
					if
					:: !left_without_extension -> wanted = true
					:: left_without_extension -> left_without_extension = false
					fi
				}
			:: !has_child || is_alive
			fi;
			if
			:: has_entry && !has_child && dispatcher == 0 && wanted ->	/* start_if_due() */
#ifdef WANTED_CLEARED_LAST
				atomic { has_child = true; process++; is_alive = true };
				wanted = false
#else
				wanted = false;
				atomic { has_child = true; process++; is_alive = true }
#endif
			:: !(has_entry && !has_child && dispatcher == 0 && wanted)
			fi;
			launcher_waits()					/* ... of the next database */
		od
	} unless {
		atomic { HAS_CRASHED(CRASH_LAUNCHER) ->
			crashed = crashed & ~CRASH_LAUNCHER;
			seen = 0;
			wanted = true;						/* adopt_dispatchers() */
			launcher_latch = true;
			goto start }
	}
}

/* ------------------------------------------------------------------------
 * The dispatcher: dispatcher.c
 * ------------------------------------------------------------------------ */

#define MAY_SEND	(dispatch_is_on && !all_paused && (has_link || !is_down))	/* may_send() */
#define IS_CAUGHT_UP	(sent == opened)

#define IS_OWED		(wakeups_seen != wakeups_answered || calls_seen != calls_answered)	/* look_is_owed() */
#ifdef SUCCESSOR_DOES_NOT_LOOK
#define IS_DUE		(IS_OWED || by_clock)
#else
#define IS_DUE		(!has_looked || IS_OWED || by_clock)
#endif

/* interrupts_attend() */
#if !ENDS && !SWITCHES
#define attend()	skip
#else
inline attend()
{
	atomic {
		if
		:: term -> goto leave
		:: !term
		fi;
		if
		:: hup -> hup = false; settings_are_new = true; dispatch_is_on = dispatch_file
		:: !hup
		fi
	}
}
#endif

/* Any wait: its latch is reset, and where it is a long one requests are attended to. */
inline waits()
{
	if
	:: atomic { latch -> latch = false }; attend()
	:: true
	fi
}

/* interrupts_reload() */
#if !PAUSES
#define interrupts_reload()	skip
#else
inline interrupts_reload()
{
	if
	:: reload ->
		reload = false;
		if
		:: is_dropping -> refused = true; reload = true
		:: !is_dropping -> all_paused = pause_row
		fi
	:: !reload
	fi
}
#endif

/* look_for_messages(), open_window() */
inline look_for_messages()
{
	if
#if CLOCK
	:: atomic { true -> by_clock = true }	/* poll_interval, or LOOK_AGAIN_MS */
#endif
	:: true
	fi;
	if
	:: (MAY_SEND && IS_CAUGHT_UP -> IS_DUE : by_clock) ->
		by_clock = false;
#ifdef REFUSAL_ANSWERS
		wakeups_answered = wakeups_seen;
		calls_answered = calls_seen;
#endif
		/* window_opening_next() */
		if
		:: atomic { is_dropping -> refused = true }
		:: atomic { !is_dropping ->
				has_looked = true;
				if
				:: opened != committed -> opened = committed; busy = true
				:: opened == committed
				fi
			};
#ifdef ANSWERED_AFTER_LOOK
			wakeups_answered = wakeups;
			calls_answered = calls_seen
#else
			atomic { wakeups_answered = wakeups_seen; calls_answered = calls_seen }
#endif
		fi
	:: !(MAY_SEND && IS_CAUGHT_UP -> IS_DUE : by_clock) -> by_clock = false
	fi
}

/* redis_state_note_failure() */
inline note_failure()
{
	has_link = false;
	is_down = has_failed;
	has_failed = true
}

/* publish() */
inline publish()
{
	atomic {
		if
		:: !has_link && redis -> has_link = true; link_is_good = true	/* redis_state_connect() */
		:: !has_link && !redis -> note_failure()
		:: has_link
		fi;
		if
		:: has_link && IS_CAUGHT_UP -> has_failed = false; is_down = false
		:: has_link && !IS_CAUGHT_UP && !all_paused ->
			if
			:: link_is_good ->
				sent = opened; busy = true;
				has_failed = false; is_down = false
			:: !link_is_good -> note_failure()
			fi
		:: has_link && !IS_CAUGHT_UP && all_paused
		:: !has_link
		fi
	}
}

/* listen_for_commits() */
#ifdef SEEN_IS_ANSWERED
#define IS_NEWS		(wakeups != wakeups_seen)
#else
#define IS_NEWS		(wakeups != wakeups_seen || (IS_OWED && !refused))
#endif
inline listen_for_commits()
{
	if
	:: MAY_SEND ->
#ifdef ASLEEP_SAID_LAST
		if
		:: IS_NEWS -> latch = true
		:: !IS_NEWS
		fi;
		asleep = true
#else
		asleep = true;
#ifndef NOT_COMPARED
		if
		:: IS_NEWS -> latch = true
		:: !IS_NEWS
		fi
#endif
#endif
	:: !MAY_SEND
	fi
}

#if STORE
/* propagate(), socket_wait(), publish_meanwhile() */
inline propagate()
{
	listen_for_commits();
	waits();
	/* The store answers, or attend is called because of the latch. */
	do
	:: true -> break
	:: latch ->
		latch = false;
		asleep = false;
		attend();
		if
		:: settings_are_new || !dispatch_is_on
		:: !settings_are_new && dispatch_is_on ->
			wakeups_seen = wakeups;
			look_for_messages();
			interrupts_reload();
			publish();
			if
			:: busy -> latch = true		/* there may be more */
			:: !busy
			fi;
			listen_for_commits()
		fi
	od;
	asleep = false
}
#endif

#define FORGET_LOCALS \
	wakeups_seen = 0; calls_seen = 0; wakeups_answered = 0; calls_answered = 0; \
	has_looked = false; by_clock = false; settings_are_new = false; refused = false; \
	has_link = false; has_failed = false; is_down = false; busy = false; all_paused = false; \
	latch = false; hup = false; term = false; link_is_good = false

active proctype dispatcher_process()
{
	byte wakeups_seen, calls_seen, wakeups_answered, calls_answered;
	bool has_looked;
	bool by_clock;				/* it looks because of the time */
	bool dispatch_is_on;
	bool all_paused;			/* as it has read it */
	bool refused;				/* a transaction could not begin */
	bool has_link;
	bool has_failed;			/* the link; the next try is at once */
	bool is_down;
	bool busy;

start:
	{
		skip;
end_none:
		atomic { is_alive -> FORGET_LOCALS; dispatch_is_on = dispatch_file };
		dispatcher = process;				/* register_dispatcher() */
		if
		:: has_extension -> all_paused = pause_row		/* dispatcher_setup_load() */
		:: !has_extension -> goto gone
		fi;
#ifdef SUCCESSOR_DOES_NOT_LOOK
		wakeups_answered = wakeups;
		calls_answered = calls;
#endif

turn:	busy = false;
		wakeups_seen = wakeups;				/* note_calls() */
		calls_seen = calls;
		attend();
		if
		:: settings_are_new -> atomic { settings_are_new = false; has_link = false }
		:: !settings_are_new
		fi;
		interrupts_reload();
		if
		:: dispatch_is_on ->				/* dispatch() */
			look_for_messages();
			interrupts_reload();
			publish();
#if STORE
			propagate();
#endif
			waits()							/* housekeeping_run() */
		:: !dispatch_is_on -> waits()		/* stand_by() */
		fi;
		refused = false;					/* interrupts_attend_to_refusal() */
		if
		:: busy -> goto turn
		:: !busy
		fi;

		/* wait_for_work() */
		if
#ifndef REQUESTS_LEFT
		:: calls != calls_seen || reload || settings_are_new || hup -> goto turn
#endif
		:: else
		fi;
		listen_for_commits();
end_sleep:
		if
		:: latch
		:: !has_link && dispatch_is_on && (redis || !is_down)	/* redis_state_ms_until_due() */
		:: has_link && !link_is_good && dispatch_is_on && redis	/* the lease is renewed */
			-> has_link = false; has_failed = true
		:: atomic { time_is_out -> time_is_out = false; by_clock = true }
		fi;
		latch = false;
		asleep = false;
		goto turn;

		/* deregister_dispatcher() */
leave:	atomic { term = false; dispatcher = 0 };
		shared_wake_launcher();
		goto ended;

		/* leave(FAREWELL_NO_EXTENSION) */
gone:
#ifdef GONE_STILL_REGISTERED
		left_without_extension = !has_extension;
		dispatcher = 0;
#else
		dispatcher = 0;
		left_without_extension = !has_extension;
#endif
		shared_wake_launcher();
ended:	atomic { FORGET_LOCALS; is_alive = false };
		goto start
	} unless {
		atomic { HAS_CRASHED(CRASH_DISPATCHER) ->
			crashed = crashed & ~CRASH_DISPATCHER;
			FORGET_LOCALS;
			goto start }
	}
}

/* ------------------------------------------------------------------------
 * What goes wrong
 * ------------------------------------------------------------------------ */

active proctype fate()
{
	byte losses, ends, crashes;

	do
	:: atomic { losses < REDIS_LOSSES && redis -> losses++; redis = false; link_is_good = false }
	:: atomic { !redis -> redis = true }
	:: atomic { ends < ENDS && is_alive && dispatcher == process && !term -> ends++; term = true; latch = true }
#if CRASHES
	:: atomic { crashes < CRASHES && crashed == 0 ->
			crashes++;
			crashed = ALL | CRASH_DISPATCHER | CRASH_LAUNCHER;
			has_entry = false; dispatcher = 0; wakeups = 0; calls = 0; asleep = false; wanted = false; reload = false;
			left_without_extension = false; launcher_calls = 0; launcher_latch = false;
			is_alive = false; has_child = false; latch = false; is_dropping = false
#if ASYNC
			;
			if
			:: committed = opened
			:: true
			fi
#endif
		}
#endif
	:: true -> break
	od
}

/* ------------------------------------------------------------------------
 * Nothing moves any more
 * ------------------------------------------------------------------------ */

#define CAN_SEND	(redis && !pause_row && dispatch_file && has_extension && has_database)

active proctype monitor()
{
	do
	:: timeout ->
		if
		:: CAN_SEND && sent != committed ->
			assert(stalls > 0 && !was_needed);
			atomic { was_needed = true; time_is_out = true }
		:: !(CAN_SEND && sent != committed) ->
			assert((sent & ~committed) == 0);
			assert(!is_alive || !(hup || settings_are_new || reload));
			assert(!(has_extension && has_database) || (is_alive && dispatcher == process));
			break
		fi
	od
}

init
{
	byte id;

	atomic {
		for (id : 1 + COPIED .. MESSAGES) {
			run session(id)
		}
	}
}
