/*
 * shared.h
 *		What the processes of a server share about the outbox of each database.
 */
#ifndef OUTBOX_SHARED_H
#define OUTBOX_SHARED_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#include "src/destination_set.h"
#include "src/foreign_text.h"
#include "src/problem.h"
#include "src/ring/ring.h"

typedef enum DispatcherState
{
	DISPATCHER_NONE,			/* no process */
	DISPATCHER_STARTING,
	DISPATCHER_IDLE,
	DISPATCHER_PUBLISHING,
	DISPATCHER_WAITING_FOR_REDIS,
	DISPATCHER_WAITING_FOR_LEASE,	/* another server publishes */
	DISPATCHER_PAUSED,			/* outbox_pause() */
	DISPATCHER_OFF				/* outbox.dispatch = off */
} DispatcherState;

typedef enum RedisState
{
	REDIS_UNKNOWN,
	REDIS_UP,
	REDIS_DOWN
} RedisState;

/* Why a dispatcher ended. */
typedef enum Farewell
{
	FAREWELL_NONE,				/* it crashed, or it still runs */
	FAREWELL_NO_EXTENSION,		/* there is nothing to do in the database */
	FAREWELL_ASKED,				/* it was asked to end: start another one */
	FAREWELL_TERMINATED			/* SIGTERM has ended it */
} Farewell;

/* The report of the dispatcher; protected by the lock of the database. */
typedef struct DispatcherReport
{
	int			pid;
	DispatcherState state;
	RedisState	redis;
	char		redis_error[LINK_ERROR_BYTES];
	int64		published;		/* newest window known to be in Redis; -1 =
								 * not known yet */
	int64		propagated;		/* newest window whose receipts have been
								 * propagated; likewise */
	int64		sent;			/* newest window of which all is in Redis, or
								 * deferred, but for what is left out; -1 =
								 * nothing is, or likewise */
	DestinationSet left_out;	/* destinations that this concerns */
	bool		deferred_known; /* the dispatcher has read outbox.deferred */
	int64		deferred;		/* messages waiting in outbox.deferred */
	int64		held;			/* of these, those that a dead one holds back */
	int64		deferred_settled;	/* of these, those that are in no
									 * unpublished window */
	int64		returned;		/* messages that were returned to the log
								 * since the server was started */
	int64		scheduled;
	int64		dead;
	TimestampTz deferred_oldest;	/* when the first of them was enqueued; 0
									 * = none waits */
	bool		deferred_paused;	/* some of them wait for outbox_resume() */
	char		deferred_error[LINK_ERROR_BYTES];	/* last refusal of a
													 * destination */
	TimestampTz last_cleanup;
} DispatcherReport;

/* A table that the bookkeeper leaves alone for a while because work on it did not end. */
typedef struct QuarantinedTable
{
	Oid			table;
	TimestampTz until;			/* by clock_now() */
} QuarantinedTable;

/*
 * A table is left alone where a process has ended, and the next process is
 * started BOOKKEEPER_RESTART_MS later: so no more can be left alone at one time.
 */
#define TABLE_QUARANTINE_S	60
#define BOOKKEEPER_RESTART_MS	1000
#define QUARANTINED_TABLES		(TABLE_QUARANTINE_S * 1000 / BOOKKEEPER_RESTART_MS + 1)

/*
 * What the dispatcher and its bookkeeper, which works on custom record tables,
 * tell each other; protected by the lock of the database. Each dispatcher has turns of
 * its own: a bookkeeper of an earlier one changes nothing here any more.
 */
typedef struct Bookkeeping
{
	uint32		turn;
	uint32		process;		/* its process number + 1; 0 = none; maybe of
								 * an earlier turn, and about to end */
	int			pid;			/* of that process */
	int64		to_mark;		/* newest window that may be marked */
	int64		marked;			/* newest one up to which all is */
	uint64		tables;			/* hash of the tables that endpoints have, as
								 * the dispatcher knows: what is marked by
								 * another list of them does not count */
	uint32		returns;		/* how often this has gone back */
	Oid			returned_table; /* for which it has last; InvalidOid = for
								 * several */
	uint64		expiries_asked;
	uint64		expiries_done;
	Oid			busy_with;		/* table that it works on; InvalidOid = none */
	TimestampTz busy_since;
	Oid			ended_at;		/* table at which one was ended last; its
								 * successor begins with those behind it */
	QuarantinedTable quarantined[QUARANTINED_TABLES];
} Bookkeeping;

/* What a dispatcher must read again. */
#define RELOAD_DESTINATIONS	1
#define RELOAD_DEFERRED		2
#define RELOAD_UNSETTLED	4	/* the same, but nothing of it may be returned
								 * before that */

/* Endpoints of a database that have a counter of their own. */
#define COUNTED_ENDPOINTS	64

typedef struct EndpointCounter
{
	pg_atomic_uint64 endpoint;	/* hash of its name, 0 = free */
	pg_atomic_uint64 duplicates;
} EndpointCounter;

typedef struct DatabaseShared
{
	Oid			database;		/* InvalidOid = free; protected by the lock of
								 * SharedState */
	LWLock	   *lock;			/* protects everything that is not atomic */

	Oid			extension;		/* extension that the rings belong to;
								 * InvalidOid = none loaded */
	Rings		rings;
	pg_atomic_uint64 rings_version; /* grows when extension or rings change */

	DispatcherReport report;
	Problem		problems[PROBLEM_KINDS];
	Bookkeeping books;

	pg_atomic_uint32 dispatcher;	/* its process number + 1; 0 = none */
	pg_atomic_uint32 wakeups;	/* counts commits of messages: latches are
								 * reset by all kinds of waits */
	pg_atomic_uint32 calls;		/* counts requests for anything else */
	pg_atomic_uint32 asleep;	/* 1 = it looks at the count of commits only
								 * when its latch is set */
	pg_atomic_uint32 farewell;	/* of the last dispatcher */
	pg_atomic_uint32 wanted;	/* 1 = the launcher is asked to look here */
	pg_atomic_uint32 askers;	/* running commands that need the database for
								 * themselves, by users who have the
								 * permission */
	pg_atomic_uint32 restart;	/* 1 = settings of the database changed */
	pg_atomic_uint32 reload;	/* bits RELOAD_…: what it must read again */

	pg_atomic_uint32 send_epoch;	/* of outbox_send(); see sender_lock.c */
	pg_atomic_uint64 sent;
	pg_atomic_uint64 duplicates;	/* of all endpoints */
	EndpointCounter counters[COUNTED_ENDPOINTS];

	pg_atomic_uint64 next_id;	/* message id to be drawn next */
	pg_atomic_uint64 last_id;	/* last one that is reserved; 0 = none since
								 * the start of the server */

	pg_atomic_uint64 tombstones;	/* ids that were made forgotten since the
									 * start of the server */
	pg_atomic_uint32 retention; /* outbox.retention of the dispatcher, in
								 * seconds; 0 = none has run yet */
	pg_atomic_uint32 replay_window; /* its outbox.replay_window; INT_MAX =
									 * likewise */
	pg_atomic_uint64 expired_tx;	/* what transactions from this one on have
									 * claimed has not expired since the start
									 * of the server */

	pg_atomic_uint64 cleanups_asked;
	pg_atomic_uint64 cleanups_done;
	pg_atomic_uint64 records_removed;	/* in all rounds together */

	ConditionVariable progress; /* signalled when windows were published, a
								 * cleanup ended, or the dispatcher ended */
} DatabaseShared;

extern void shared_request(void);
extern void shared_startup(void);

extern bool shared_is_available(void);
extern DatabaseShared *shared_mine(void);
extern bool shared_is_dispatcher(void);
extern DatabaseShared *shared_find(Oid database, bool create);
extern void shared_forget(DatabaseShared *shared);
extern int	shared_capacity(void);
extern DatabaseShared *shared_at(int i);
extern int	shared_number(const DatabaseShared *shared);

extern void shared_set_launcher(bool present);
extern bool shared_has_launcher(void);
extern uint32 shared_launcher_calls(void);
extern void shared_wake_launcher(void);
extern void shared_wake_process(uint32 number_plus_one);
extern void shared_wake_dispatcher(DatabaseShared *shared);
extern void shared_tell_dispatcher(DatabaseShared *shared);

#endif							/* OUTBOX_SHARED_H */
