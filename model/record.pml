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
 * A segment may have a filter, which says that our id is not in it; the dispatcher
 * begins one before anybody can write there, and may withdraw it at any moment.
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
#ifndef FORGETTERS
#define FORGETTERS	0			/* transactions that forget the message */
#endif
#ifndef MERGES
#define MERGES		0			/* 1: one segment of records is compacted */
#endif
#ifndef FILTERS
#define FILTERS		0			/* 1: segments have filters */
#endif
#ifndef PREPARES
#define PREPARES	0			/* 1: transactions may be prepared */
#endif

#define WRITERS		(CLAIMERS + BYSTANDERS + FORGETTERS)
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

#if FILTERS
/*
 * The filter of each segment, as far as it is about our id. Ids of others set bits
 * of the same words, atomically; so they do not matter. Tags are left out: the
 * filter of a segment is asked whatever it was begun for.
 */
#define NONE			0
#define WITHOUT_KEY		1
#define WITH_KEY		2
byte filter[SEGMENTS];
#endif
#if PREPARES
byte prepared;					/* set of transactions */
#else
#define prepared		0
#endif

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

/*
 * The tombstone in outbox.forgotten; there is never more than one. Records that
 * were committed when a forget committed do not count (ghost).
 */
#define NO_TOMBSTONE	0
#define BEING_WRITTEN	1
#define THERE			2
#define BEING_DELETED	3
#if FORGETTERS
byte tombstone;
byte tombstone_by = NOBODY;
bool expiring;					/* its key was in no segment; now it is deleted */
byte deleted_by[CLAIMERS] = NOBODY;	/* rows that delete_forgotten() deletes */
byte uncounted;
byte was_counted;				/* set of writers: since it read the rings a record counted */
#define COUNTS(r)		(row_state[r] == COMMITTED && !HAS(uncounted, r))
#if CLAIMERS == 2
#define ANY_COUNTS		(COUNTS(0) || COUNTS(1))
#else
#define ANY_COUNTS		(COUNTS(0) || COUNTS(1) || COUNTS(2))
#endif
#else
#define COUNTS(r)		(row_state[r] == COMMITTED)
#endif

#if MERGES
/* A segment of compacted records: a set of records, which never changes. */
#define HISTORY			SEGMENTS
byte merges = MERGES;
byte history_state = EMPTY;
byte history;
byte history_published_at = NEVER;
byte source = NOWHERE;			/* of the merge that is under way */
#define FILLING			SEALED
#define HISTORY_HAS_EXPIRED	(history_published_at != NEVER && now - history_published_at > RETENTION)
#endif

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
#if MERGES
	if
	:: history_state == QUIET -> live = live | BIT(HISTORY)
	:: else
	fi;
#endif
#if FORGETTERS
	if
	:: ANY_COUNTS -> was_counted = was_counted | BIT(me)
	:: else -> was_counted = was_counted & ~BIT(me)
	fi;
	forgotten = false;
#endif
	read_current = current;
	rings_changed = rings_changed & ~BIT(me);
	fate = ABSENT
}

/* look_into_segment(): with a dirty snapshot; TRUNCATE is wholly before or after it. */
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
			winner = r;
#if FORGETTERS
			if
			:: deleted_by[r] != NOBODY -> fate = IN_PROGRESS; winner = deleted_by[r]
			:: else
			fi
#endif
		:: else
		fi
	}
}

/* look_everywhere(): live segments, one after the other; then compacted records. */
#define MUST_LOOK(n)	(HAS(live, n) && !HAS_EXPIRED(n))
#if MERGES
#define look_into_one(n) \
	if \
	:: n == HISTORY && history != 0 && !HISTORY_HAS_EXPIRED -> fate = COMMITTED \
	:: n == HISTORY && !(history != 0 && !HISTORY_HAS_EXPIRED) \
	:: n < HISTORY && MUST_LOOK(n) -> look_into(n) \
	:: n < HISTORY && !MUST_LOOK(n) \
	fi
#else
#define look_into_one(n) \
	if \
	:: MUST_LOOK(n) -> look_into(n) \
	:: else \
	fi
#endif

#if FILTERS
/* filters_probe(): all at the same moment, before any segment is looked into. */
inline filters_probe()
{
	atomic { skip; d_step {
		for (c : 0 .. SEGMENTS - 1) {
			live = (filter[c] == WITHOUT_KEY -> live & ~BIT(c) : live)
		} } }
}

/* The claim has the lock on the key. */
inline look_into_current()
{
#ifdef NO_OF_BEGIN_IS_FINAL
	if
	:: current_lacks_it -> skip
	:: else -> look_into(read_current)
	fi
#else
	if
	:: filter[read_current] == WITHOUT_KEY -> skip
	:: else -> look_into(read_current)
	fi
#endif
}

/* filter_note(): under the lock on the key, and that on the segment. */
inline filter_note()
{
#ifdef NOTED_WHERE_READ
	filter[read_current] = (filter[read_current] == NONE -> NONE : WITH_KEY)
#else
	filter[segment] = (filter[segment] == NONE -> NONE : WITH_KEY)
#endif
}
#else
#define look_into_current()	look_into(read_current)
#endif

inline look_everywhere()
{
#if FILTERS
	filters_probe();
#endif
	do
	:: d_step { live != 0 && fate == ABSENT ->
		c = 0;
		do
		:: !HAS(live, c) -> c++
		:: else -> break
		od;
		look_into_one(c);
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

#if FORGETTERS
/* Nothing of a message that was forgotten makes it a duplicate. */
#define CHECK_DUPLICATE	assert(HAS(was_counted, me))

/*
 * judge_look(): what a look means, given that what it found may have been forgotten.
 */
#if defined(ABSENT_NOT_JUDGED)
#define IS_JUDGED		(fate == COMMITTED)
#elif defined(COMPACTED_NOT_JUDGED)
#define IS_JUDGED		(fate != IN_PROGRESS && !(history_state == QUIET && history != 0))
#else
#define IS_JUDGED		(fate != IN_PROGRESS)
#endif
#ifdef TOMBSTONE_HOLDS_AT_ONCE
#define HOLDS			(tombstone == THERE || tombstone == BEING_WRITTEN)
#else
#define HOLDS			(tombstone == THERE)
#endif
#ifdef TOMBSTONE_NOT_WAITED_FOR
#define IS_WAITED_FOR	(tombstone == BEING_DELETED)
#else
#define IS_WAITED_FOR	(tombstone == BEING_DELETED || (tombstone == BEING_WRITTEN && fate == ABSENT))
#endif

inline judge_look()
{
	d_step {
		if
		:: IS_JUDGED && HOLDS -> fate = ABSENT; forgotten = true
		:: IS_JUDGED && !HOLDS && IS_WAITED_FOR -> fate = IN_PROGRESS; winner = tombstone_by
		:: else
		fi }
}

/* delete_forgotten(): with the insert of the new record. */
inline delete_forgotten()
{
	if
	:: forgotten ->
		if
#ifdef TOMBSTONE_LEFT
		:: true -> skip
#elif defined(TOMBSTONE_GOES_FOR_GOOD)
		:: true -> tombstone = NO_TOMBSTONE; tombstone_by = NOBODY
#else
		:: tombstone == THERE -> tombstone = BEING_DELETED; tombstone_by = me; expiring = false
#endif
		:: else
		fi;
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: r != me && row_state[r] == COMMITTED && row_segment[r] != NOWHERE && IS_LIVE(state[row_segment[r]]) ->
				deleted_by[r] = me
			:: else
			fi
		}
	:: else
	fi;
	forgotten = false
}

/* A transaction that wrote or deleted the tombstone has ended. */
inline tombstone_committed()
{
	if
	:: tombstone_by == me && tombstone == BEING_WRITTEN ->
#ifdef FORGET_DELETES_RECORD
		tombstone = NO_TOMBSTONE;
#else
		tombstone = THERE;
#endif
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: row_state[r] == COMMITTED -> uncounted = uncounted | BIT(r)
			:: else
			fi
		}
	:: tombstone_by == me && tombstone == BEING_DELETED -> tombstone = NO_TOMBSTONE
	:: else
	fi;
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: deleted_by[r] == me -> deleted_by[r] = NOBODY; row_segment[r] = NOWHERE
		:: else
		fi
	}
	tombstone_by = (tombstone_by == me -> NOBODY : tombstone_by)
}

inline tombstone_aborted(who)
{
	if
	:: tombstone_by == who && tombstone == BEING_WRITTEN -> tombstone = NO_TOMBSTONE
	:: tombstone_by == who && tombstone == BEING_DELETED -> tombstone = THERE
	:: else
	fi;
	for (r : 0 .. CLAIMERS - 1) {
		deleted_by[r] = (deleted_by[r] == who -> NOBODY : deleted_by[r])
	}
	tombstone_by = (tombstone_by == who -> NOBODY : tombstone_by)
}
#else
#define CHECK_DUPLICATE	true
#endif

/*
 * Whether a look need not be made again. What it found may have been forgotten
 * and expired, with its tombstone, before it asked for that.
 */
#ifdef FOUND_IS_FOUND
#define IS_ANSWER		(fate != ABSENT || !HAS(rings_changed, me))
#define HAS_LOST		false
#else
#define IS_ANSWER		(fate == IN_PROGRESS || !HAS(rings_changed, me))
#define HAS_LOST		(fate == COMMITTED && HAS(rings_changed, me))
#endif

/* claim_look_up(), by begin */
inline claim_look_up()
{
	do
	:: d_step {
		rings_read();
#ifndef NOTED_AFTER_LOOK
		note_memo()
#endif
		};
#ifdef NO_OF_BEGIN_IS_FINAL
		current_lacks_it = (filter[read_current] == WITHOUT_KEY);
#endif
		look_everywhere();
#if FORGETTERS
		if
		:: atomic { fate == COMMITTED -> judge_look() };
			memo = memo && !forgotten
		:: atomic { fate != COMMITTED -> skip }
		fi;
#endif
#ifdef NOTED_AFTER_LOOK
		atomic { skip; d_step { note_memo() } };
		break
#else
		if
		:: IS_ANSWER -> break
		:: !IS_ANSWER
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
#if PREPARES
	prepared = prepared & ~BIT(me);
#endif
	ended = ended | BIT(me)
}

/* Rule 5, when a record is written: no other is, or was for this transaction. */
inline check_claim()
{
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: r != me && COUNTS(r) ->
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

/* claim_in() */
inline claim_message()
{
	do
	:: skip;
#ifndef NO_KEY_LOCK
		atomic { key_lock == NOBODY || key_lock == me -> key_lock = me };	/* record_lock_take() */
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
		:: atomic { memo -> d_step { look_into_current(); live = 0 } }
		:: atomic { !memo -> skip }; look_everywhere()
		fi;
#if FORGETTERS
		judge_look();
#endif
		if
		:: atomic { fate == ABSENT && !HAS_CHANGED ->
#if !defined(NO_AGE_CHECK) && !defined(AGE_CHECKED_BEFORE_LOOK)
			too_old = TOO_OLD;				/* check_may_claim() */
#endif
			if
			:: too_old -> release_key(); goto rollback
			:: else
			fi };
#if FILTERS && !defined(NOTED_AFTER_UNLOCK)
			filter_note();
#endif
			d_step {						/* insert() */
#ifndef INSERT_BEFORE_LOOK
				check_claim();
#if FORGETTERS
				delete_forgotten();
#endif
				row_state[me] = IN_PROGRESS;
				row_segment[me] = segment;
				/* Not into a table that readers skip. */
				assert(IS_LIVE(state[segment]));
#endif
				release_key();
#ifdef SEGMENT_LOCK_NOT_TO_END
				segment_lock[segment] = segment_lock[segment] & ~BIT(me);
#endif
#ifndef NOTED_AFTER_UNLOCK
				segment = 0;
#endif
				memo = false; winner = 0; start = 0; read_current = 0 };
#ifdef NOTED_AFTER_UNLOCK
			filter_note();
			segment = 0;
#endif
			break
		:: atomic { fate == COMMITTED && !HAS_LOST -> CHECK_DUPLICATE; release_key(); goto rollback }
		:: atomic { fate == IN_PROGRESS -> release_key_to_wait() };
			d_step { HAS(ended, winner) ->	/* XactLockTableWait() */
				memo = false }
		:: atomic { (fate == ABSENT && HAS_CHANGED) || HAS_LOST ->
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
#ifdef NO_OF_BEGIN_IS_FINAL
	bool current_lacks_it;
#endif
#if FORGETTERS
	bool forgotten;
#endif

	{
		/* open_message_begin() */
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
			claim_look_up();
			if
			:: atomic { fate == COMMITTED -> CHECK_DUPLICATE; goto rollback }	/* begin says false */
			:: atomic { fate != COMMITTED -> live = 0; fate = 0; winner = 0; read_current = 0 }
			fi
		:: PESSIMISTIC != 0 -> skip
		fi;

		/* open_message_commit(), or open_message_begin() where that claims */
		claim_message();
#ifdef TWICE
		/* The same message once more in this transaction: finds its own record. */
		atomic { key_lock == NOBODY -> key_lock = me };
		atomic { skip; release_key() };
#endif
#if PREPARES
		if
		:: prepared = prepared | BIT(me)	/* PREPARE TRANSACTION */
		:: skip
		fi;
#endif
		if
		:: d_step { true ->			/* COMMIT */
#ifdef INSERT_BEFORE_LOOK
			check_claim();
#endif
#if FORGETTERS
			tombstone_committed();
			was_counted = ALL;
#endif
			row_state[me] = COMMITTED;
			end_transaction() };
			goto done
		:: goto rollback
		fi;

rollback:							/* or duplicate, 23505, 40001 */
		atomic { skip; d_step {
#if FORGETTERS
			tombstone_aborted(me);
#endif
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
#if FORGETTERS
		forgotten = false;
		was_counted = was_counted & ~BIT(me);
#endif
#ifdef NO_OF_BEGIN_IS_FINAL
		current_lacks_it = false;
#endif
		live = 0; read_current = 0; segment = 0; fate = 0; winner = 0; start = 0;
		memo = false; too_old = false; had_lock = false } }
}

#if FORGETTERS
/* record_forget_in_ring() */
inline record_forget()
{
	do
	:: atomic { key_lock == NOBODY -> key_lock = me };
		d_step { rings_read() };
		look_everywhere();
		atomic {
			if
#ifdef FORGETS_WHAT_IS_IN_PROGRESS
			:: fate != ABSENT && tombstone == NO_TOMBSTONE ->
#else
			:: fate == COMMITTED && tombstone == NO_TOMBSTONE ->
#endif
				tombstone = BEING_WRITTEN;			/* forgotten_add() */
				tombstone_by = me;
#ifdef FORGET_DELETES_RECORD
				for (r : 0 .. CLAIMERS - 1) {
					deleted_by[r] = (row_state[r] == COMMITTED -> me : NOBODY)
				}
#endif
				release_key();
				break
			:: else ->
				if
				:: fate == COMMITTED && (tombstone == BEING_WRITTEN || tombstone == BEING_DELETED) ->
					fate = IN_PROGRESS;
					winner = tombstone_by
				:: else
				fi;
				release_key();
				if
				:: fate != IN_PROGRESS && !HAS(rings_changed, me) -> break	/* it is not known */
				:: else
				fi
			fi };
		if
		:: d_step { fate == IN_PROGRESS && HAS(ended, winner) -> winner = 0 }	/* XactLockTableWait() */
		:: d_step { fate != IN_PROGRESS -> winner = 0 }
		fi
	od
}

/* outbox_forget(), and COMMIT or ROLLBACK. */
proctype forgetter(byte me)
{
	byte live, read_current, fate, winner;
	bool forgotten;

	{
		started = started | BIT(me);
		record_forget();
		if
		:: d_step { true -> tombstone_committed(); ended = ended | BIT(me) }
		:: d_step { true -> tombstone_aborted(me); ended = ended | BIT(me) }
		fi
	} unless {
		HAS(killed, me)
	};
	atomic { skip; d_step {
		killed = killed & ~BIT(me);
		rings_changed = rings_changed & ~BIT(me);
		memo_changed = memo_changed & ~BIT(me);
		was_counted = was_counted & ~BIT(me);
		live = 0; read_current = 0; fate = 0; winner = 0; forgotten = false } }
}
#endif

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
 * The dispatcher: rotation.c, cleanup_round.c, expiry.c
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

#if MERGES
#define IS_SOURCE(n)	(source == n)
#define CAN_BE_MERGED(n)	(state[n] == QUIET && published_at[n] != NEVER)
#define ANY_TO_MERGE	(CAN_BE_MERGED(0) || CAN_BE_MERGED(1) || CAN_BE_MERGED(SEGMENTS - 1))
#define TO_MERGE		(CAN_BE_MERGED(0) -> 0 : (CAN_BE_MERGED(1) -> 1 : SEGMENTS - 1))
#else
#define IS_SOURCE(n)	false
#endif

/*
 * rotation_run(), which needs no lock; and advance(): the transactions that change segment n.
 * All of them pass over a segment that somebody holds.
 */
#define STEPS(n) \
	:: d_step { COMMITTED_ALL && state[n] == SEALED && NO_WRITER(n) ->	/* make_quiet() */ \
		state[n] = QUIET; \
		changed(); commit() } \
	:: d_step { COMMITTED_ALL && state[n] == QUIET && published_at[n] == NEVER && ALL_DISPATCHED(n) -> \
		published_at[n] = now;										/* note_published() */ \
		changed(); commit() } \
	:: d_step { COMMITTED_ALL && state[n] == QUIET && OUTLIVED(n) && !IS_SOURCE(n) ->	/* expiry_retire() */ \
		state[n] = RETIRED; \
		published_at[n] = NEVER; \
		changed(); commit() } \
	:: d_step { COMMITTED_ALL && state[n] == RETIRED && segment_lock[n] == 0 ->	/* emptying_run() */ \
		truncate_segment(n); \
		state[n] = EMPTY; \
		changed(); commit() }

#if FILTERS
#define HAS_ROW(r, n)	(row_segment[r] == n && row_state[r] != ABSENT)
#define HAS_RECORD(r, n)	(row_segment[r] == n && row_state[r] == COMMITTED)
#if CLAIMERS == 2
#define HAS_ROWS(n)		(HAS_ROW(0, n) || HAS_ROW(1, n))
#define HAS_RECORDS(n)	(HAS_RECORD(0, n) || HAS_RECORD(1, n))
#else
#define HAS_ROWS(n)		(HAS_ROW(0, n) || HAS_ROW(1, n) || HAS_ROW(2, n))
#define HAS_RECORDS(n)	(HAS_RECORD(0, n) || HAS_RECORD(1, n) || HAS_RECORD(2, n))
#endif
#ifdef FILTER_OF_ROWS_UNREAD
#define IS_UNUSED(n)	true
#else
#define IS_UNUSED(n)	(!HAS_ROWS(n))
#endif
#ifdef FILTER_BESIDE_WRITERS
#define HAS_WRITER(n)	false
#else
#define HAS_WRITER(n)	(segment_lock[n] != 0)
#endif

/* What the dispatcher does with the filter of segment n; rotation is below. */
#define FILTER_STEPS(n) \
	:: d_step { filter[n] == NONE && state[n] == CURRENT && !HAS_WRITER(n) && IS_UNUSED(n) -> \
		filter[n] = WITHOUT_KEY }									/* begin_current() */ \
	:: d_step { filter[n] == NONE && state[n] == QUIET ->			/* fill() */ \
		filter[n] = (HAS_RECORDS(n) -> WITH_KEY : WITHOUT_KEY) } \
	:: d_step { filter[n] != NONE -> filter[n] = NONE }				/* withdraw_filter() */
#endif

/* Under AccessExclusiveLock, which was granted at once. */
inline truncate_segment(n)
{
	for (r : 0 .. CLAIMERS - 1) {
		if
		:: row_segment[r] == n ->
			/* Rule 6: what is not dispatched never expires. */
			assert(row_state[r] == COMMITTED && dispatched_at[r] != NEVER);
			row_segment[r] = NOWHERE;
#if FORGETTERS
			deleted_by[r] = NOBODY
#endif
		:: else
		fi
	}
}

#if FORGETTERS
/* record_ring_holds() */
#if MERGES
#define HISTORY_HOLDS	(history_state == QUIET && history != 0)
#else
#define HISTORY_HOLDS	false
#endif
#define HOLDS_ROW(r)	(row_segment[r] != NOWHERE && row_state[r] != ABSENT && IS_LIVE(state[row_segment[r] % SEGMENTS]))
#ifdef TOMBSTONE_EXPIRES_FIRST
#define RING_HOLDS		false
#elif CLAIMERS == 2
#define RING_HOLDS		(HOLDS_ROW(0) || HOLDS_ROW(1) || HISTORY_HOLDS)
#else
#define RING_HOLDS		(HOLDS_ROW(0) || HOLDS_ROW(1) || HOLDS_ROW(2) || HISTORY_HOLDS)
#endif
#endif

proctype dispatcher()
{
	byte next;

end:
	do
	:: d_step { COMMITTED_ALL && rotations > 0 && MAY_ROTATE && ANY_EMPTY ->	/* rotation_run() */
		rotations--;
		do
		:: state[next] != EMPTY -> next++
		:: else -> break
		od;
#if FILTERS
		filter[next] = WITHOUT_KEY;	/* before anybody can write to it */
#ifdef FILTER_CLEARED_WHEN_SEALED
		filter[current] = WITHOUT_KEY;
#endif
#endif
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
#if FILTERS
	FILTER_STEPS(0)
	FILTER_STEPS(1)
#if SEGMENTS > 2
	FILTER_STEPS(2)
#endif
#endif
#if MERGES
	/* merge_begin(), merge_keys(): all committed records of a segment are copied */
	:: d_step { merges > 0 && history_state == EMPTY && ANY_TO_MERGE ->
		merges--;
		source = TO_MERGE;
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: row_segment[r] == source && row_state[r] == COMMITTED -> history = history | BIT(r)
			:: else
			fi
		}
		history_state = FILLING;
		changed() }
	/* ring_update_finish_merge(): sources are retired, in the same transaction */
	:: d_step { history_state == FILLING ->
		history_published_at = published_at[source];
		history_state = QUIET;
		state[source] = RETIRED;
		published_at[source] = NEVER;
		source = NOWHERE;
		changed() }
	:: d_step { history_state == QUIET && HISTORY_HAS_EXPIRED ->
		history_state = RETIRED;
		changed() }
	:: d_step { history_state == RETIRED ->
		history_state = EMPTY;
		history = 0;
		history_published_at = NEVER;
		changed() }
#endif
#if FORGETTERS
	/* forgotten_expire(): it looks, then it deletes */
	:: d_step { tombstone == THERE && !expiring && !RING_HOLDS -> expiring = true }
	:: d_step { tombstone == THERE && expiring -> tombstone = NO_TOMBSTONE; expiring = false }
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
#ifdef PROCESSED
		/* Claimer 0 has come to its end before. */
		d_step {
			row_state[0] = COMMITTED;
			row_segment[0] = 0;
			started = BIT(0);
			ended = BIT(0) };
		i = 1;
#endif
#ifndef ENDLESS
		do
		:: i < CLAIMERS -> run claimer(i); i++
		:: else -> break
		od;
#else
		i = CLAIMERS;
#endif
		do
		:: i < CLAIMERS + BYSTANDERS -> run bystander(i); i++
#if FORGETTERS
		:: i >= CLAIMERS + BYSTANDERS && i < WRITERS -> run forgetter(i); i++
#endif
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

	/* kill -9 of PostgreSQL: what is in progress is rolled back, unless it was
	 * prepared; locks and filters are gone, and the shared copy is read from the
	 * table again. */
	:: d_step { crashes > 0 ->
		crashes--;
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: HAS(started & ~ended & ~prepared, r) -> row_state[r] = ABSENT; row_segment[r] = NOWHERE
			:: else
			fi
		}
		for (c : 0 .. SEGMENTS - 1) {
			segment_lock[c] = segment_lock[c] & prepared;
#if FILTERS
#ifdef FILTER_AFTER_CRASH
			filter[c] = (filter[c] == NONE -> NONE : WITHOUT_KEY)
#else
			filter[c] = NONE
#endif
#endif
		}
#if FORGETTERS
		tombstone_aborted(tombstone_by);
		for (r : 0 .. CLAIMERS - 1) {
			deleted_by[r] = NOBODY
		}
		expiring = false;
#endif
		killed = started & ~ended & ~prepared;
		ended = ended | killed;
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
