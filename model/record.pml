/*
 * record.pml
 *		Promela model of the ring of records: looking, claiming, rotation, expiry.
 *
 * CLAIMERS transactions process the same incoming message, all of one id (ids
 * meet only where a slot is held, which is what `bystander` does). Each step
 * carries the name of the C function that it stands for. Every read of shared
 * state and every change of it is a step of its own, so that anything may come
 * between. A broken variant is chosen by defining its name.
 *
 * Time is a clock of few ticks; the retention is RETENTION of them.
 */
#ifndef CLAIMERS
#define CLAIMERS	3
#endif
#ifndef SLOTS
#define SLOTS		3
#endif
#ifndef ROTATIONS
#define ROTATIONS	2
#endif
#ifndef TICKS
#define TICKS		1
#endif
#ifndef RETENTION
#define RETENTION	0
#endif
#ifndef CRASHES
#define CRASHES		0
#endif
#ifndef BYSTANDERS
#define BYSTANDERS	0			/* 1: a transaction of another id */
#endif
#ifndef PESSIMISTIC
#define PESSIMISTIC	2			/* 0 = none, 1 = all, 2 = any */
#endif

#define WRITERS		(CLAIMERS + BYSTANDERS)
#define NEVER		255
#define NOWHERE		255

/* ------------------------------------------------------------------------
 * The ring
 * ------------------------------------------------------------------------ */

#define EMPTY		0
#define CURRENT		1
#define SEALED		2
#define QUIET		3
#define RETIRED		4
#define IS_LIVE(state)	((state) >= CURRENT && (state) <= QUIET)

typedef Rings {
	byte generation;
	byte current;
	byte state[SLOTS];
	byte published_at[SLOTS];
};

Rings table;					/* outbox.ring, as committed */
Rings shared;					/* the copy in shared memory */

inline copy_rings(to, from)
{
	to.generation = from.generation;
	to.current = from.current;
	for (c : 0 .. SLOTS - 1) {
		to.state[c] = from.state[c];
		to.published_at[c] = from.published_at[c]
	}
	c = 0
}

hidden byte c;
hidden byte r;

byte now;						/* the clock */

/* Locks. */
byte key_lock = NOWHERE;		/* who holds the lock on the key */
byte slot_lock[SLOTS];			/* set of writers that hold RowExclusiveLock */
#define BIT(n)		(1 << (n))

/* The record of each claimer. */
#define NONE		0
#define IN_PROGRESS 1
#define COMMITTED	2
#define ABORTED		3
byte row_state[CLAIMERS];
byte row_slot[CLAIMERS] = NOWHERE;
byte started;					/* set of transactions that have begun */
byte tx_ended;					/* set of those that are over */

/* Ghosts. */
byte dispatched_at[CLAIMERS] = NEVER;	/* when its messages were in Redis */
byte known[CLAIMERS];			/* records that had committed when it began */

bool killed[WRITERS + 1];		/* the last one is the dispatcher */
byte crashes = CRASHES;
byte rotations = ROTATIONS;

/* has_expired() */
#define HAS_EXPIRED(published_at)	((published_at) != NEVER && now - (published_at) > RETENTION)

#define ANY_EMPTY	(shared.state[0] == EMPTY || shared.state[1] == EMPTY || shared.state[SLOTS - 1] == EMPTY)

/* ------------------------------------------------------------------------
 * Sessions
 * ------------------------------------------------------------------------ */

#define ABSENT		0
/* IN_PROGRESS and COMMITTED as above */

/* look_into(): with a dirty snapshot; TRUNCATE is wholly before or after it. */
inline look_into(n)
{
	for (r : 0 .. CLAIMERS - 1) {
		if
#ifdef OLD_SNAPSHOT_LOOK
		/* As the snapshot of the transaction's begin has it. */
		:: fate == ABSENT && row_slot[r] == n && row_state[r] == COMMITTED &&
		   ((known[me] >> r) & 1) ->
#else
		:: fate == ABSENT && row_slot[r] == n &&
		   (row_state[r] == IN_PROGRESS || row_state[r] == COMMITTED) && r != me ->
#endif
			fate = row_state[r];
			winner = r
		:: else
		fi
	}
	r = 0
}

/* look_everywhere(): live slots of `rings`, one after the other. */
inline look_everywhere()
{
	n = 0;
	do
	:: d_step { n < SLOTS && fate == ABSENT ->
		if
		:: IS_LIVE(rings.state[n]) && !HAS_EXPIRED(rings.published_at[n]) -> look_into(n)
		:: else
		fi;
		n++ }
	:: else -> break
	od
}

/* others_are_quiet() */
inline note_memo()
{
	memo = true;
	memo_generation = rings.generation;
#ifndef SKIP_WITHOUT_QUIET
	for (c : 0 .. SLOTS - 1) {
		if
		:: rings.state[c] == SEALED -> memo = false
		:: else
		fi
	}
	c = 0
#endif
}

/* record_look(), for begin */
inline record_look()
{
	do
	:: d_step {
		copy_rings(rings, shared);
#ifndef NOTED_AFTER_LOOK
		note_memo();
#endif
		fate = ABSENT };
		look_everywhere();
#ifdef NOTED_AFTER_LOOK
		d_step { copy_rings(rings, shared); note_memo() };
		break
#else
		if
		:: atomic { fate != ABSENT || shared.generation == rings.generation -> break }
		:: atomic { !(fate != ABSENT || shared.generation == rings.generation) -> skip }
		fi
#endif
	od
}

/* ring_open_current(): RowExclusiveLock, then look again. */
inline ring_open_current()
{
	do
	:: slot = shared.current;
		/* TRUNCATE holds its lock for one step only, so this never waits long. */
		slot_lock[slot] = slot_lock[slot] | BIT(me);
#ifdef NO_RECHECK_OF_CURRENT
		break
#else
		if
		:: atomic { shared.current == slot -> break }
		:: atomic { shared.current != slot ->
			if
			:: (held & BIT(slot)) == 0 -> slot_lock[slot] = slot_lock[slot] & ~BIT(me)
			:: else
			fi }
		fi
#endif
	od;
	held = held | BIT(slot)
}

/* The transaction is over: its locks go. */
inline end_transaction()
{
	for (c : 0 .. SLOTS - 1) {
		slot_lock[c] = slot_lock[c] & ~BIT(me)
	}
	c = 0;
	tx_ended = tx_ended | BIT(me)
}

/* Rule 5, when a record becomes valid: no other is, or was for this transaction. */
inline check_claim()
{
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: r != me && row_state[r] == COMMITTED ->
			/* the other one has outlived its time since its dispatch, */
			assert(dispatched_at[r] != NEVER && now - dispatched_at[r] > RETENTION);
			/* and was committed before this transaction began */
			assert((known[me] >> r) & 1)
		:: r != me && row_state[r] == IN_PROGRESS -> assert(false)
		:: else
		fi
	}
	r = 0
}

/* insert(): append_row() */
inline insert()
{
	check_claim();
	row_state[me] = IN_PROGRESS;
	row_slot[me] = slot;
	/* Not into a table that readers skip. */
	assert(IS_LIVE(table.state[slot]))
}

#define MAY_SKIP	(memo && MEMO_IS_GOOD)
#ifdef SKIP_WITHOUT_GENERATION
#define MEMO_IS_GOOD true
#else
#define MEMO_IS_GOOD (memo_generation == rings.generation)
#endif
#define TOO_OLD		(now - start > RETENTION)

#ifdef NO_KEY_LOCK
#define release_key()	skip
#else
#define release_key()	key_lock = (key_lock == me -> NOWHERE : key_lock)
#endif

/* record_claim() */
inline record_claim()
{
	do
	:: skip;
#ifndef NO_KEY_LOCK
		atomic { key_lock == NOWHERE -> key_lock = me };		/* lock_key() */
#endif
		ring_open_current();
#ifdef AGE_CHECKED_BEFORE_LOOK
		too_old = TOO_OLD;
#endif
		d_step { copy_rings(rings, shared); fate = ABSENT };
#ifdef INSERT_BEFORE_LOOK
		if
		:: row_state[me] == NONE -> d_step { row_state[me] = IN_PROGRESS; row_slot[me] = slot }
		:: else
		fi;
		release_key();
#endif
		/* look_unless_known() */
		if
		:: d_step { MAY_SKIP -> look_into(rings.current) }
		:: else -> look_everywhere()
		fi;
		if
		:: atomic { fate == ABSENT && shared.generation == rings.generation ->
#if !defined(NO_AGE_CHECK) && !defined(AGE_CHECKED_BEFORE_LOOK)
			too_old = TOO_OLD;				/* check_age() */
#endif
			if
			:: too_old -> release_key(); goto rollback
			:: else
			fi }
			/* The clock may go on, the look is over. */
			d_step {
#ifndef INSERT_BEFORE_LOOK
				insert();
#endif
				release_key();
				fate = ABSENT };
#ifdef SLOT_LOCK_NOT_TO_END
			slot_lock[slot] = slot_lock[slot] & ~BIT(me);
#endif
			break
		:: atomic { fate == COMMITTED -> release_key(); break }
		:: atomic { fate == IN_PROGRESS -> release_key() };
			tx_ended & BIT(winner);			/* XactLockTableWait() */
			memo = false
		:: atomic { fate == ABSENT && shared.generation != rings.generation ->
			release_key();
			memo = false }
		fi
	od
}

inline copy_rings_to_nothing()
{
	rings.generation = 0;
	rings.current = 0;
	for (c : 0 .. SLOTS - 1) {
		rings.state[c] = 0;
		rings.published_at[c] = 0
	}
	c = 0
}

/*
 * A transaction: outbox_begin(), the handler, outbox_commit(), and COMMIT or
 * ROLLBACK, which may take for ever.
 */
proctype claimer(byte me)
{
	Rings rings;
	byte n, slot, held, fate, winner, start, memo_generation;
	bool memo, too_old, pessimistic;

	{
		/* session_begin() */
		d_step {
			started = started | BIT(me);
			start = now;
			for (r : 0 .. CLAIMERS - 1) {
				if
				:: row_state[r] == COMMITTED -> known[me] = known[me] | BIT(r)
				:: else
				fi
			}
			r = 0 };
		if
		:: atomic { PESSIMISTIC != 1 -> pessimistic = false }; record_look()
		:: atomic { PESSIMISTIC != 0 -> pessimistic = true }; record_claim()
		fi;
		if
		:: fate == COMMITTED -> goto rollback		/* begin says false */
		:: else
		fi;

		/* session_commit() */
		if
		:: !pessimistic -> record_claim()
		:: else
		fi;
		if
		:: fate == COMMITTED -> goto rollback		/* 23505 */
		:: else
		fi;

		if
		:: d_step { true ->			/* COMMIT */
#ifdef INSERT_BEFORE_LOOK
			check_claim();
#endif
			row_state[me] = COMMITTED;
			end_transaction() }
		:: goto rollback
		fi;
		goto over;

rollback:
		atomic { skip; d_step {
			row_state[me] = ABORTED;
			row_slot[me] = NOWHERE;
			end_transaction() } };

over:
		goto done
	} unless {
		killed[me]
	};

done:
	skip;
	d_step {
		killed[me] = false;
		copy_rings_to_nothing();
		n = 0; slot = 0; held = 0; fate = 0; winner = 0; start = 0; memo_generation = 0;
		memo = false; too_old = false; pessimistic = false }
}

/* A transaction of another id: it holds the slot that was current. */
proctype bystander(byte me)
{
	byte slot, held;

	{
		atomic { skip; started = started | BIT(me) };
		ring_open_current();
		d_step { end_transaction() };
		goto done
	} unless {
		killed[me]
	};
done:
	skip;
	d_step { killed[me] = false; slot = 0; held = 0 }
}

/* ------------------------------------------------------------------------
 * The dispatcher: cleanup.c
 * ------------------------------------------------------------------------ */

/*
 * Each step: a transaction that changes outbox.ring, then tell_sessions(). A
 * commit is on disk before anybody sees it.
 */
#ifdef TOLD_BEFORE_COMMIT
#define CHANGED		shared
#define tell_sessions()	copy_rings(table, shared)
#else
#define CHANGED		table
#define tell_sessions()	copy_rings(shared, table)
#endif

#define DISPATCHED(r, n) (row_slot[r] != n || row_state[r] != COMMITTED || dispatched_at[r] != NEVER)
#if CLAIMERS == 2
#define ALL_DISPATCHED(n) (DISPATCHED(0, n) && DISPATCHED(1, n))
#else
#define ALL_DISPATCHED(n) (DISPATCHED(0, n) && DISPATCHED(1, n) && DISPATCHED(2, n))
#endif

#ifdef ROTATION_WAITS_FOR_WRITERS
#define MAY_ROTATE		(slot_lock[shared.current] == 0)
#else
#define MAY_ROTATE		true			/* rotate(): needs no lock */
#endif
#ifdef QUIET_WITHOUT_PROOF
#define NO_WRITER(n)	true
#else
#define NO_WRITER(n)	(slot_lock[n] == 0)	/* ConditionalLockRelationOid(ShareLock) */
#endif
#ifdef EMPTIED_BEFORE_PROOF
#define OUTLIVED(n)		true
#else
#define OUTLIVED(n)		HAS_EXPIRED(shared.published_at[n])
#endif

/* step(): the transactions that change slot n */
#define STEP(n) \
	:: atomic { shared.state[n] == SEALED && NO_WRITER(n) ->		/* make_quiet() */ \
		CHANGED.state[n] = QUIET; \
		CHANGED.generation++ }; \
		d_step { tell_sessions() } \
	:: atomic { shared.state[n] == QUIET && shared.published_at[n] == NEVER && ALL_DISPATCHED(n) -> \
		CHANGED.published_at[n] = now;								/* note_published() */ \
		CHANGED.generation++ }; \
		d_step { tell_sessions() } \
	:: atomic { shared.state[n] == QUIET && OUTLIVED(n) ->			/* retire() */ \
		CHANGED.state[n] = RETIRED; \
		CHANGED.published_at[n] = NEVER; \
		CHANGED.generation++ }; \
		d_step { tell_sessions() } \
	:: d_step { shared.state[n] == RETIRED && slot_lock[n] == 0 ->	/* empty() */ \
		truncate(n); \
		CHANGED.state[n] = EMPTY; \
		CHANGED.generation++ }; \
		d_step { tell_sessions() }

/* truncate_slot(), under AccessExclusiveLock that was granted at once */
inline truncate(n)
{
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: row_slot[r] == n ->
			/* Rule 6: what is not dispatched never expires. */
			assert(row_state[r] == COMMITTED && dispatched_at[r] != NEVER);
			row_slot[r] = NOWHERE
		:: else
		fi
	}
	r = 0
}

proctype dispatcher(byte me)
{
	byte next;

start:
	{
		atomic { skip; d_step { copy_rings(shared, table) } };	/* load_state(): rings_reload() */
end:
		do
		:: atomic { rotations > 0 && MAY_ROTATE && ANY_EMPTY ->	/* rotate() */
			d_step {
				rotations--;
				do
				:: shared.state[next] != EMPTY -> next++
				:: else -> break
				od;
				CHANGED.state[CHANGED.current] = SEALED;
				CHANGED.state[next] = CURRENT;
				CHANGED.current = next;
				CHANGED.generation++;
				next = 0 } };
progress:
			d_step { tell_sessions() }
		STEP(0)
		STEP(1)
#if SLOTS > 2
		STEP(2)
#endif
		od
	} unless {
		atomic { killed[me] -> killed[me] = false; next = 0 };
		goto start
	}
}

/* ------------------------------------------------------------------------
 * What happens around them
 * ------------------------------------------------------------------------ */

active proctype world()
{
	byte i;

	d_step {
		table.state[0] = CURRENT;
		for (c : 0 .. SLOTS - 1) {
			table.published_at[c] = NEVER
		}
		copy_rings(shared, table) };
	atomic {
		run dispatcher(WRITERS);
		do
		:: i < CLAIMERS -> run claimer(i); i++
		:: else -> break
		od;
		do
		:: i < WRITERS -> run bystander(i); i++
		:: else -> break
		od;
		i = 0 };
end:
	do
	:: now < TICKS -> now++

	/* All windows are published: what has committed is in Redis. */
	:: d_step { !(ALL_DISPATCHED(0) && ALL_DISPATCHED(1) && ALL_DISPATCHED(SLOTS - 1)) ->
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: row_state[r] == COMMITTED && dispatched_at[r] == NEVER -> dispatched_at[r] = now
			:: else
			fi
		}
		r = 0 }

	/* kill -9 of PostgreSQL: what is in progress is rolled back, locks are gone,
	 * and the shared copy is read from the table again. */
	:: d_step { crashes > 0 ->
		crashes--;
		for (r : 0 .. WRITERS - 1) {
			if
			:: ((started & ~tx_ended) >> r) & 1 ->
				killed[r] = true;
				if
				:: r < CLAIMERS -> row_state[r] = ABORTED; row_slot[r] = NOWHERE
				:: else
				fi
			:: else
			fi
		}
		for (r : 0 .. SLOTS - 1) {
			slot_lock[r] = 0
		}
		r = 0;
		tx_ended = started;
		key_lock = NOWHERE;
		killed[WRITERS] = true;
		copy_rings(shared, table) }
	od
}
