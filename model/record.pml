/*
 * record.pml
 *		Promela model of the ring of records: looking, claiming, rotation, expiry.
 *
 * CLAIMERS transactions process the same incoming message; they are all of one
 * id, for different ids meet only where a segment is held (that is what the
 * bystander does). Each step carries the name of the C function that it stands
 * for. Every read of shared state and every change of it is a step of its own,
 * so that anything may come between. A broken variant is chosen by defining its
 * name.
 *
 * Time is a clock of few ticks; the retention is RETENTION of them. Generations
 * are only ever compared for being the same, so instead of a number there is,
 * for each reader, whether the rings have changed since it read them.
 */
#ifndef CLAIMERS
#define CLAIMERS	2
#endif
#ifndef SEGMENTS
#define SEGMENTS		3
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
#define ALL			((1 << WRITERS) - 1)
#define DISPATCHER	WRITERS
#define BIT(n)		(1 << (n))
#define HAS(set, n)	(((set) >> (n)) & 1)

/* ------------------------------------------------------------------------
 * The ring. Sessions read the copy in shared memory, which is loaded from the
 * table outbox.ring when a change of it has been committed. Commit and load
 * are one step here: nobody but a crash comes between, and after that the copy
 * is loaded first of all.
 * ------------------------------------------------------------------------ */

#define EMPTY		0
#define CURRENT		1
#define SEALED		2
#define QUIET		3
#define RETIRED		4
#define IS_LIVE(state)	((state) >= CURRENT && (state) <= QUIET)
#define NEVER		255

byte state[SEGMENTS];
byte current;
byte published_at[SEGMENTS];		/* NEVER = not yet */
byte rings_changed;				/* set of writers: since it read the rings */
byte memo_changed;				/* since it noted its memo */

#ifdef TOLD_BEFORE_COMMIT
byte table_state[SEGMENTS];		/* what is on disk */
byte table_current;
bool uncommitted;
#endif

hidden byte c;
hidden byte r;

byte now;						/* the clock */

/* Locks. */
#define NOBODY		255
byte key_lock = NOBODY;			/* who holds the lock on the key */
byte segment_lock[SEGMENTS];			/* set of writers that hold RowExclusiveLock */

/* The record of each claimer. */
#define ABSENT		0
#define IN_PROGRESS 1
#define COMMITTED	2
#define NOWHERE		255
byte row_state[CLAIMERS];
byte row_segment[CLAIMERS] = NOWHERE;
byte started;					/* set of transactions that have begun */
byte ended;						/* set of those that are over */

/* Ghosts. */
byte dispatched_at[CLAIMERS] = NEVER;	/* when its messages were in Redis */
byte known[CLAIMERS];			/* records that had committed when it began */

byte killed;
byte crashes = CRASHES;
byte rotations = ROTATIONS;

/* has_expired() */
#define HAS_EXPIRED(n)	(published_at[n] != NEVER && now - published_at[n] > RETENTION)

/* Each change of a segment raises the generation. */
inline changed()
{
	rings_changed = ALL;
	memo_changed = ALL
}

/* ------------------------------------------------------------------------
 * Sessions
 * ------------------------------------------------------------------------ */

/* rings_read() */
inline rings_read()
{
	live = 0;
	for (c : 0 .. SEGMENTS - 1) {
		if
		:: IS_LIVE(state[c]) -> live = live | BIT(c)
		:: else
		fi
	}
	read_current = current;
	rings_changed = rings_changed & ~BIT(me);
	fate = ABSENT
}

/* look_into(): with a dirty snapshot; TRUNCATE is wholly before or after it. */
inline look_into(n)
{
	for (r : 0 .. CLAIMERS - 1) {
		if
#ifdef OLD_SNAPSHOT_LOOK
		/* As the snapshot of the transaction's begin has it. */
		:: fate == ABSENT && row_segment[r] == n && row_state[r] == COMMITTED && HAS(known[me], r) ->
#else
		:: fate == ABSENT && row_segment[r] == n && row_state[r] != ABSENT && r != me ->
#endif
			fate = row_state[r];
			winner = r
		:: else
		fi
	}
}

/* look_everywhere(): live segments, one after the other. */
#define MUST_LOOK(n)	(HAS(live, n) && !HAS_EXPIRED(n))

inline look_everywhere()
{
	do
	:: d_step { live != 0 && fate == ABSENT ->
		c = 0;
		do
		:: !HAS(live, c) -> c++
		:: else -> break
		od;
		if
		:: MUST_LOOK(c) -> look_into(c)
		:: else
		fi;
		live = live & ~BIT(c) }
	:: !(live != 0 && fate == ABSENT) -> break
	od
}

#define OTHERS_ARE_QUIET	(state[0] != SEALED && state[1] != SEALED && state[SEGMENTS - 1] != SEALED)

/* What is noted is noted before the look. */
inline note_memo()
{
#ifdef SKIP_WITHOUT_QUIET
	memo = true;
#else
	memo = OTHERS_ARE_QUIET;
#endif
	memo_changed = memo_changed & ~BIT(me)
}

/* record_look(), by begin */
inline record_look()
{
	do
	:: d_step {
		rings_read();
#ifndef NOTED_AFTER_LOOK
		note_memo()
#endif
		};
		look_everywhere();
#ifdef NOTED_AFTER_LOOK
		atomic { skip; d_step { note_memo() } };
		break
#else
		if
		:: fate != ABSENT || !HAS(rings_changed, me) -> break
		:: !(fate != ABSENT || !HAS(rings_changed, me))
		fi
#endif
	od
}

/*
 * ring_open_current(): RowExclusiveLock, then look again. TRUNCATE holds its
 * lock for one step only, so this never waits for long.
 */
inline ring_open_current()
{
	do
	:: segment = current;
		d_step {
			had_lock = HAS(segment_lock[segment], me);
			segment_lock[segment] = segment_lock[segment] | BIT(me) };
#ifdef NO_RECHECK_OF_CURRENT
		break
#else
		if
		:: current == segment -> break
		:: d_step { current != segment ->
			if
			:: !had_lock -> segment_lock[segment] = segment_lock[segment] & ~BIT(me)
			:: else
			fi;
			had_lock = false }
		fi
#endif
	od
}

/* The transaction is over: its locks go. */
inline end_transaction()
{
	for (c : 0 .. SEGMENTS - 1) {
		segment_lock[c] = segment_lock[c] & ~BIT(me)
	}
	ended = ended | BIT(me)
}

/* Rule 5, when a record is written: no other is, or was for this transaction. */
inline check_claim()
{
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: r != me && row_state[r] == COMMITTED ->
			/* the other one has outlived its time since its dispatch, */
			assert(dispatched_at[r] != NEVER && now - dispatched_at[r] > RETENTION);
			/* and was committed before this transaction began */
			assert(HAS(known[me], r))
		:: else ->
#ifndef INSERT_BEFORE_LOOK
			assert(r == me || row_state[r] != IN_PROGRESS)
#else
			skip
#endif
		fi
	}
}

/* A claim's second look at the generation; without it nothing breaks, see README. */
#ifdef NO_RECHECK_OF_GENERATION
#define HAS_CHANGED	false
#else
#define HAS_CHANGED	HAS(rings_changed, me)
#endif
#ifdef SKIP_WITHOUT_GENERATION
#define MEMO_IS_GOOD true
#else
#define MEMO_IS_GOOD !HAS(memo_changed, me)
#endif
#define TOO_OLD		(now - start > RETENTION)

#ifdef NO_KEY_LOCK
#define release_key()	skip
#else
#define release_key()	if :: key_lock == me -> key_lock = NOBODY :: else fi
#endif
#ifdef KEY_LOCK_HELD_WHILE_WAITING
#define release_key_to_wait()	skip
#else
#define release_key_to_wait()	release_key()
#endif

/* record_claim() */
inline record_claim()
{
	do
	:: skip;
#ifndef NO_KEY_LOCK
		atomic { key_lock == NOBODY || key_lock == me -> key_lock = me };	/* lock_key() */
#endif
#ifdef AGE_CHECKED_BEFORE_LOOK
		too_old = TOO_OLD;
#endif
		ring_open_current();
		atomic { skip; d_step {
			rings_read();
			memo = memo && MEMO_IS_GOOD;
			had_lock = false
#ifdef INSERT_BEFORE_LOOK
			;
			row_state[me] = IN_PROGRESS;
			row_segment[me] = segment;
			release_key()
#endif
			} };
		/* look_unless_known() */
		if
		:: atomic { memo -> d_step { look_into(read_current); live = 0 } }
		:: atomic { !memo -> skip }; look_everywhere()
		fi;
		if
		:: atomic { fate == ABSENT && !HAS_CHANGED ->
#if !defined(NO_AGE_CHECK) && !defined(AGE_CHECKED_BEFORE_LOOK)
			too_old = TOO_OLD;				/* record_ring_check_claim() */
#endif
			if
			:: too_old -> release_key(); goto rollback
			:: else
			fi };
			d_step {						/* insert() */
#ifndef INSERT_BEFORE_LOOK
				check_claim();
				row_state[me] = IN_PROGRESS;
				row_segment[me] = segment;
				/* Not into a table that readers skip. */
				assert(IS_LIVE(state[segment]));
#endif
				release_key();
#ifdef SEGMENT_LOCK_NOT_TO_END
				segment_lock[segment] = segment_lock[segment] & ~BIT(me);
#endif
				memo = false; segment = 0; winner = 0; start = 0; read_current = 0 };
			break
		:: atomic { fate == COMMITTED -> release_key(); goto rollback }
		:: atomic { fate == IN_PROGRESS -> release_key_to_wait() };
			d_step { HAS(ended, winner) ->	/* XactLockTableWait() */
				memo = false }
		:: atomic { fate == ABSENT && HAS_CHANGED ->
			release_key();
			memo = false }
		fi
	od
}

/*
 * A transaction: outbox_begin(), the handler, outbox_commit(), and COMMIT or
 * ROLLBACK, which may take for ever. They begin in the order of their numbers.
 */
proctype claimer(byte me)
{
	byte live, read_current, segment, fate, winner, start;
	bool memo, too_old, had_lock;

	{
		/* session_begin() */
		d_step { me == 0 || HAS(started, me - 1) ->
			started = started | BIT(me);
			start = now;
			for (r : 0 .. CLAIMERS - 1) {
				if
				:: row_state[r] == COMMITTED -> known[me] = known[me] | BIT(r)
				:: else
				fi
			} };
		if
		:: PESSIMISTIC != 1 ->
			record_look();
			if
			:: atomic { fate == COMMITTED -> goto rollback }	/* begin says false */
			:: atomic { fate != COMMITTED -> live = 0; fate = 0; winner = 0; read_current = 0 }
			fi
		:: PESSIMISTIC != 0 -> skip
		fi;

		/* session_commit(), or session_begin() where that claims */
		record_claim();
#ifdef TWICE
		/* The same message once more in this transaction: finds its own record. */
		atomic { key_lock == NOBODY -> key_lock = me };
		atomic { skip; release_key() };
#endif
		if
		:: d_step { true ->			/* COMMIT */
#ifdef INSERT_BEFORE_LOOK
			check_claim();
#endif
			row_state[me] = COMMITTED;
			end_transaction() };
			goto done
		:: goto rollback
		fi;

rollback:							/* or duplicate, 23505, 40001 */
		atomic { skip; d_step {
			row_state[me] = ABSENT;
			row_segment[me] = NOWHERE;
			end_transaction() } }
	} unless {
		HAS(killed, me)
	};

done:
	atomic { skip; d_step {
		killed = killed & ~BIT(me);
		rings_changed = rings_changed & ~BIT(me);
		memo_changed = memo_changed & ~BIT(me);
		live = 0; read_current = 0; segment = 0; fate = 0; winner = 0; start = 0;
		memo = false; too_old = false; had_lock = false } }
}

/* A transaction of another id: it holds the segment that was current. */
proctype bystander(byte me)
{
	byte segment;
	bool had_lock;

	{
		do
		:: started = started | BIT(me);
			ring_open_current();
			atomic { skip; d_step { end_transaction(); segment = 0; had_lock = false } };
#ifndef ENDLESS
			goto done
#endif
		od
	} unless {
		HAS(killed, me)
	};
done:
	atomic { skip; d_step { killed = killed & ~BIT(me); segment = 0; had_lock = false } }
}

/* ------------------------------------------------------------------------
 * The dispatcher: cleanup.c
 * ------------------------------------------------------------------------ */

#define DISPATCHED(r, n) (row_segment[r] != n || row_state[r] != COMMITTED || dispatched_at[r] != NEVER)
#if CLAIMERS == 2
#define ALL_DISPATCHED(n) (DISPATCHED(0, n) && DISPATCHED(1, n))
#else
#define ALL_DISPATCHED(n) (DISPATCHED(0, n) && DISPATCHED(1, n) && DISPATCHED(2, n))
#endif
#define ANY_EMPTY		(state[0] == EMPTY || state[1] == EMPTY || state[SEGMENTS - 1] == EMPTY)

#ifdef ROTATION_WAITS_FOR_WRITERS
#define MAY_ROTATE		(segment_lock[current] == 0)
#else
#define MAY_ROTATE		true
#endif
#ifdef QUIET_WITHOUT_PROOF
#define NO_WRITER(n)	true
#else
#define NO_WRITER(n)	(segment_lock[n] == 0)	/* ConditionalLockRelationOid(ShareLock) */
#endif
#ifdef EMPTIED_BEFORE_PROOF
#define OUTLIVED(n)		true
#else
#define OUTLIVED(n)		HAS_EXPIRED(n)
#endif

#ifdef TOLD_BEFORE_COMMIT
#define commit()		uncommitted = true
#define COMMITTED_ALL	(!uncommitted)
#else
#define commit()		skip
#define COMMITTED_ALL	true
#endif

/*
 * rotate(), needs no lock; and step(): the transactions that change segment n.
 * All of them pass over a segment that somebody holds.
 */
#define STEPS(n) \
	:: d_step { COMMITTED_ALL && state[n] == SEALED && NO_WRITER(n) ->	/* make_quiet() */ \
		state[n] = QUIET; \
		changed(); commit() } \
	:: d_step { COMMITTED_ALL && state[n] == QUIET && published_at[n] == NEVER && ALL_DISPATCHED(n) -> \
		published_at[n] = now;										/* note_published() */ \
		changed(); commit() } \
	:: d_step { COMMITTED_ALL && state[n] == QUIET && OUTLIVED(n) ->		/* retire() */ \
		state[n] = RETIRED; \
		published_at[n] = NEVER; \
		changed(); commit() } \
	:: d_step { COMMITTED_ALL && state[n] == RETIRED && segment_lock[n] == 0 ->	/* emptying_run() */ \
		truncate_segment(n); \
		state[n] = EMPTY; \
		changed(); commit() }

/* Under AccessExclusiveLock, which was granted at once. */
inline truncate_segment(n)
{
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: row_segment[r] == n ->
			/* Rule 6: what is not dispatched never expires. */
			assert(row_state[r] == COMMITTED && dispatched_at[r] != NEVER);
			row_segment[r] = NOWHERE
		:: else
		fi
	}
}

proctype dispatcher()
{
	byte next;

end:
	do
	:: d_step { COMMITTED_ALL && rotations > 0 && MAY_ROTATE && ANY_EMPTY ->	/* rotate() */
		rotations--;
		do
		:: state[next] != EMPTY -> next++
		:: else -> break
		od;
		state[current] = SEALED;
		state[next] = CURRENT;
		current = next;
		next = 0;
		changed(); commit() }
	STEPS(0)
	STEPS(1)
#if SEGMENTS > 2
	STEPS(2)
#endif
#ifdef TOLD_BEFORE_COMMIT
	:: d_step { uncommitted ->
		for (c : 0 .. SEGMENTS - 1) {
			table_state[c] = state[c]
		}
		table_current = current;
		uncommitted = false }
#endif
	od
}

/* ------------------------------------------------------------------------
 * What happens around them
 * ------------------------------------------------------------------------ */

active proctype world()
{
	byte i;

	d_step {
		state[0] = CURRENT;
#ifdef TOLD_BEFORE_COMMIT
		table_state[0] = CURRENT;
#endif
		for (c : 0 .. SEGMENTS - 1) {
			published_at[c] = NEVER
		} };
	atomic {
		run dispatcher();
#ifndef ENDLESS
		do
		:: i < CLAIMERS -> run claimer(i); i++
		:: else -> break
		od;
#else
		i = CLAIMERS;
#endif
		do
		:: i < WRITERS -> run bystander(i); i++
		:: else -> break
		od;
		i = 0 };
end:
	do
	:: now < TICKS -> now++

	/* All windows are published: what has committed is in Redis. */
	:: d_step { !(ALL_DISPATCHED(0) && ALL_DISPATCHED(1) && ALL_DISPATCHED(SEGMENTS - 1)) ->
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: row_state[r] == COMMITTED && dispatched_at[r] == NEVER -> dispatched_at[r] = now
			:: else
			fi
		} }

	/* kill -9 of PostgreSQL: what is in progress is rolled back, locks are
	 * gone, and the shared copy is read from the table again. */
	:: d_step { crashes > 0 ->
		crashes--;
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: HAS(started & ~ended, r) -> row_state[r] = ABSENT; row_segment[r] = NOWHERE
			:: else
			fi
		}
		for (c : 0 .. SEGMENTS - 1) {
			segment_lock[c] = 0
		}
		killed = started & ~ended;
		ended = started;
		key_lock = NOBODY;
#ifdef TOLD_BEFORE_COMMIT
		for (c : 0 .. SEGMENTS - 1) {
			state[c] = table_state[c]
		}
		current = table_current;
		uncommitted = false;
		changed()
#endif
		}
	od
}

#ifdef ENDLESS
/* Writers without end that overlap do not keep the ring from turning. */
ltl rotates { <> (rotations == 0) }
#endif
