/*
 * compaction.pml
 *		Promela model of the compaction of records: merging segments into the history,
 *		looking meanwhile, filters, dumps.
 *
 * Two keys. Message 0 is claimed by CLAIMERS transactions; message 1 was
 * processed before, and LOOKERS ask for it. How the ring of records turns and
 * expires is in record.pml; here segments become quiet, are compacted, emptied and
 * used again, and nothing expires: so a key that was committed once must be
 * found by every look that begins later, and in every dump.
 *
 * Each step carries the name of the C function that it stands for. A broken
 * variant is chosen by defining its name.
 *
 * In the code the snapshot of the calling statement keeps the segments that it may
 * still look into from being emptied. That is not here: the second look at the
 * generation alone must do.
 */
#ifndef CLAIMERS
#define CLAIMERS	2
#endif
#ifndef LOOKERS
#define LOOKERS		0
#endif
#ifndef DUMPS
#define DUMPS		0
#endif
#ifndef ROTATIONS
#define ROTATIONS	1
#endif
#ifndef MERGES
#define MERGES		2
#endif
#ifndef FILTERS
#define FILTERS		0			/* how many are built */
#endif
#ifndef CRASHES
#define CRASHES		0
#endif
#ifndef PESSIMISTIC
#define PESSIMISTIC	2			/* 0 = none, 1 = all, 2 = any */
#endif

#define SESSIONS	(CLAIMERS + LOOKERS)
#define ALL			((1 << SESSIONS) - 1)
#define BIT(n)		(1 << (n))
#define HAS(set, n)	(((set) >> (n)) & 1)

#define KEYS		2
#ifdef ONE_ID
#define KEY(me)		0			/* lookers ask for message 0, too */
#else
#define KEY(me)		((me) < CLAIMERS -> 0 : 1)
#endif

/* Tables: three segments of records, two of the history. */
#define RECORDS		3
#define TABLES		5
#define IS_HISTORY(n)	((n) >= RECORDS)

/* ------------------------------------------------------------------------
 * The rings, as in record.pml: commit and load are one step.
 * ------------------------------------------------------------------------ */

#define EMPTY		0
#define CURRENT		1
#define SEALED		2
#define FILLING		3
#define QUIET		4
#define RETIRED		5
#define IS_LIVE(state)	((state) == CURRENT || (state) == SEALED || (state) == QUIET)
#define NONE		7

byte state[TABLES];
byte tag[TABLES];				/* which time of its being quiet */
byte current;
byte rings_changed;				/* set of sessions: since it read the rings */
byte memo_changed;

/* The merge that is under way. */
byte target = NONE;
byte sources;					/* set of segments whose compacted_into is the target */
byte merged;					/* keys below are in the target or in no source */
byte flushed;					/* of these, the ones that a crash leaves */

/* What is in the tables. */
byte keys[TABLES];				/* set of keys, committed */
byte segment_lock[TABLES];			/* set of sessions that hold RowExclusiveLock */
byte row_segment[CLAIMERS] = NONE; /* row in progress */

#define NOBODY		255
byte key_lock = NOBODY;
byte started;					/* set of sessions that have begun */
byte ended;						/* set of those that are over */

/* Filters: of one time of a segment. */
byte filter_tag[TABLES];		/* 0 = there is none */
byte filter_keys[TABLES];
byte building_segment = NONE;
byte building_tag;
byte building_keys;

/* A dump. */
bool dump_open;
byte dump_sees[TABLES];			/* rows that its snapshot shows it */
byte must_dump;					/* keys that had been committed then */
byte is_older;					/* set of segments that were retired after it */

/* Ghost. */
byte committed = BIT(1);		/* keys that have been committed */

byte killed;
byte crashes = CRASHES;
byte rotations = ROTATIONS;
byte merges = MERGES;
byte filters = FILTERS;

hidden byte c;
hidden byte r;

inline changed()
{
	rings_changed = ALL;
	memo_changed = ALL
}

/* ------------------------------------------------------------------------
 * Sessions: record_ring.c
 * ------------------------------------------------------------------------ */

#define ABSENT		0
#define IN_PROGRESS 1
#define COMMITTED	2

/* is_for() */
#ifdef FILTER_WITHOUT_TAG
#define IS_FOR(n)	(filter_tag[n] != 0 && state[n] == QUIET)
#else
#define IS_FOR(n)	(filter_tag[n] != 0 && state[n] == QUIET && filter_tag[n] == tag[n])
#endif

/*
 * rings_read(), and filters_probe() by what was read: a filter that was
 * published since is of a segment that is as it was, or has another tag.
 */
inline rings_read()
{
	live = 0;
	for (c : 0 .. TABLES - 1) {
		if
		:: IS_LIVE(state[c]) && !(IS_FOR(c) && !HAS(filter_keys[c], KEY(me))) -> live = live | BIT(c)
		:: else
		fi
	}
	read_current = current;
	rings_changed = rings_changed & ~BIT(me);
	was_committed = HAS(committed, KEY(me));
	fate = ABSENT
}

/* look_into_segment(), history_contains(): a row that is there, or on its way. */
inline look_into(n)
{
	if
	:: HAS(keys[n], KEY(me)) -> fate = COMMITTED
	:: else ->
		for (r : 0 .. CLAIMERS - 1) {
			if
			:: KEY(me) == 0 && r != me && row_segment[r] == n -> fate = IN_PROGRESS; winner = r
			:: else
			fi
		}
	fi
}

/* look_everywhere(): records first, then the history. */
inline look_everywhere()
{
	do
	:: d_step { live != 0 && fate == ABSENT ->
#ifdef HISTORY_FIRST
		c = TABLES - 1;
		do
		:: !HAS(live, c) -> c--
		:: else -> break
		od;
#else
		c = 0;
		do
		:: !HAS(live, c) -> c++
		:: else -> break
		od;
#endif
		look_into(c);
		live = live & ~BIT(c) }
	:: !(live != 0 && fate == ABSENT) -> break
	od
}

#ifdef NO_RECHECK_OF_GENERATION
#define HAS_CHANGED	false
#else
#define HAS_CHANGED	HAS(rings_changed, me)
#endif

/* record_ring_look(): what was committed before it began is found. */
inline claim_look_up()
{
	do
	:: d_step {
		rings_read();
		memo = (state[0] != SEALED && state[1] != SEALED && state[2] != SEALED);
		memo_changed = memo_changed & ~BIT(me) };
		look_everywhere();
		if
		:: atomic { fate != ABSENT || !HAS_CHANGED ->
			assert(fate != ABSENT || !was_committed) };
			break
		:: !(fate != ABSENT || !HAS_CHANGED)
		fi
	od
}

/* ring_open_current() */
inline ring_open_current()
{
	do
	:: segment = current;
		d_step {
			had_lock = HAS(segment_lock[segment], me);
			segment_lock[segment] = segment_lock[segment] | BIT(me) };
		if
		:: current == segment -> break
		:: d_step { current != segment ->
			if
			:: !had_lock -> segment_lock[segment] = segment_lock[segment] & ~BIT(me)
			:: else
			fi;
			had_lock = false }
		fi
	od
}

inline end_transaction()
{
	for (c : 0 .. TABLES - 1) {
		segment_lock[c] = segment_lock[c] & ~BIT(me)
	}
	ended = ended | BIT(me)
}

#define release_key()	if :: key_lock == me -> key_lock = NOBODY :: else fi

/* claim_in(), ring_claim_look() */
inline claim_message()
{
	do
	:: atomic { key_lock == NOBODY -> key_lock = me };
		ring_open_current();
		atomic { skip; d_step {
			rings_read();
			memo = memo && !HAS(memo_changed, me);
			had_lock = false } };
		if
		:: atomic { memo -> d_step { look_into(read_current); live = 0 } }
		:: atomic { !memo -> skip }; look_everywhere()
		fi;
		if
		:: atomic { fate == ABSENT && !HAS_CHANGED ->
			assert(!HAS(committed, 0));
			for (r : 0 .. CLAIMERS - 1) {
				assert(row_segment[r] == NONE)
			}
			row_segment[me] = segment;
			assert(IS_LIVE(state[segment]));
			release_key() };
			break
		:: atomic { fate == COMMITTED -> release_key() };
			goto rollback
		:: atomic { fate == IN_PROGRESS -> release_key() };
			d_step { HAS(ended, winner) -> memo = false; winner = 0 }
		:: atomic { fate == ABSENT && HAS_CHANGED ->
			release_key();
			memo = false }
		fi
	od
}

proctype claimer(byte me)
{
	byte live, read_current, segment, fate, winner;
	bool memo, had_lock, was_committed;

	{
		started = started | BIT(me);
		if
		:: PESSIMISTIC != 1 ->
			claim_look_up();
			if
			:: fate == COMMITTED -> goto rollback
			:: fate != COMMITTED
			fi
		:: PESSIMISTIC != 0 -> skip
		fi;
		claim_message();
		if
		:: d_step { true ->			/* COMMIT */
			keys[row_segment[me]] = keys[row_segment[me]] | BIT(0);
			committed = committed | BIT(0);
			row_segment[me] = NONE;
			end_transaction() };
			goto done
		:: goto rollback
		fi;
rollback:
		atomic { skip; d_step {
			row_segment[me] = NONE;
			end_transaction() } }
	} unless {
		HAS(killed, me)
	};
done:
	atomic { skip; d_step {
		killed = killed & ~BIT(me);
		rings_changed = rings_changed & ~BIT(me);
		memo_changed = memo_changed & ~BIT(me);
		live = 0; read_current = 0; segment = 0; fate = 0; winner = 0;
		memo = false; had_lock = false; was_committed = false } }
}

/* A redelivery: begin, which says that it is a duplicate, and rollback. */
proctype looker(byte me)
{
	byte live, read_current, fate, winner;
	bool memo, was_committed;

	{
		started = started | BIT(me);
		claim_look_up();
		ended = ended | BIT(me)
	} unless {
		HAS(killed, me)
	};
	atomic { skip; d_step {
		killed = killed & ~BIT(me);
		rings_changed = rings_changed & ~BIT(me);
		memo_changed = memo_changed & ~BIT(me);
		live = 0; read_current = 0; fate = 0; memo = false; was_committed = false } }
}

/*
 * pg_dump: a snapshot, then a lock on each table; from then on it is not
 * emptied, so what the snapshot shows of it is dumped.
 */
proctype dump()
{
	byte n, dumped;

	{
		d_step {
			dump_open = true;
			must_dump = committed;
			for (c : 0 .. TABLES - 1) {
				dump_sees[c] = keys[c]
			} };
		do
		:: atomic { n < TABLES -> dumped = dumped | dump_sees[n]; n++ }
		:: n == TABLES -> break
		od;
		atomic { skip; d_step {
			assert((must_dump & ~dumped) == 0);
			dump_open = false;
			is_older = 0;
			must_dump = 0; dumped = 0; n = 0;
			for (c : 0 .. TABLES - 1) {
				dump_sees[c] = 0
			} } }
	} unless {
		HAS(killed, 7)
	};
	killed = killed & ~BIT(7)
}

/* ------------------------------------------------------------------------
 * The dispatcher: rotation.c, cleanup_round.c, compaction_choice.c, filter_builder.c
 * ------------------------------------------------------------------------ */

#ifdef COMPACTED_BEFORE_QUIET
#define IS_SOURCE(n)	(state[n] == QUIET || state[n] == SEALED)
#else
#define IS_SOURCE(n)	(state[n] == QUIET)
#endif

/* compaction_choice_make(): all segments of a ring that can be merged, or but one of them. */
inline compaction_choice_make(first, last)
{
	for (c : first .. last) {
		if
		:: IS_SOURCE(c) -> sources = sources | BIT(c)
		:: else
		fi
	}
}

/* merge_keys(): the next key of all sources. */
inline merge_keys()
{
	for (c : 0 .. TABLES - 1) {
		if
		:: HAS(sources, c) && HAS(keys[c], merged) -> keys[target] = keys[target] | BIT(merged)
		:: else
		fi
	}
	merged++
}

#ifdef FLIP_BEFORE_ALL_IS_MERGED
#define ALL_IS_MERGED	(merged > 0)
#else
#define ALL_IS_MERGED	(merged == KEYS)
#endif

inline retire_sources()
{
	for (c : 0 .. TABLES - 1) {
		if
		:: HAS(sources, c) ->
			state[c] = RETIRED;
			if
			:: dump_open -> is_older = is_older | BIT(c)
			:: else
			fi
		:: else
		fi
	}
}

/* ring_update_finish_merge(): one transaction. */
#ifdef SOURCES_RETIRED_FIRST
#define FINISH \
	:: d_step { target != NONE && ALL_IS_MERGED && sources != 0 -> \
		retire_sources(); sources = 0; changed() } \
	:: d_step { target != NONE && ALL_IS_MERGED && sources == 0 -> \
		state[target] = QUIET; tag[target]++; target = NONE; merged = 0; flushed = 0; changed() }
#else
#define FINISH \
	:: d_step { target != NONE && ALL_IS_MERGED -> \
		retire_sources(); sources = 0; \
		state[target] = QUIET; tag[target]++; target = NONE; merged = 0; flushed = 0; changed() }
#endif

#ifdef EMPTIED_UNDER_A_DUMP
#define IS_NEEDED_BY_DUMP(n)	false
#else
#define IS_NEEDED_BY_DUMP(n)	HAS(is_older, n)
#endif

#define STEPS(n) \
	:: d_step { state[n] == SEALED && segment_lock[n] == 0 ->		/* make_quiet() */ \
		state[n] = QUIET; \
		tag[n]++; \
		changed() } \
	:: d_step { state[n] == RETIRED && segment_lock[n] == 0 && !IS_NEEDED_BY_DUMP(n) ->	/* emptying_run() */ \
		keys[n] = 0; \
		dump_sees[n] = 0; \
		state[n] = EMPTY; \
		changed() } \
	:: d_step { filters > 0 && building_segment == NONE && state[n] == QUIET && filter_tag[n] != tag[n] -> \
		building_segment = n;										/* filter_begin(), fill() */ \
		building_tag = tag[n]; \
		building_keys = keys[n] }

inline truncate_target()
{
	for (c : 0 .. KEYS - 1) {
		if
		:: c >= merged -> keys[target] = keys[target] & ~BIT(c)
		:: else
		fi
	}
}

proctype dispatcher()
{
	byte next;

end:
	do
	:: d_step { rotations > 0 && (state[0] == EMPTY || state[1] == EMPTY || state[2] == EMPTY) ->	/* rotation_run() */
		rotations--;
		do
		:: state[next] != EMPTY -> next++
		:: else -> break
		od;
		state[current] = SEALED;
		state[next] = CURRENT;
		current = next;
		next = 0;
		changed() }
	STEPS(0)
	STEPS(1)
	STEPS(2)
	STEPS(3)
	STEPS(4)
	/* merge_begin(): records, or the history, into an empty segment of the history */
	:: d_step { merges > 0 && target == NONE && (IS_SOURCE(0) || IS_SOURCE(1) || IS_SOURCE(2)) &&
		(state[3] == EMPTY || state[4] == EMPTY) ->
		compaction_choice_make(0, RECORDS - 1);
		target = (state[3] == EMPTY -> 3 : 4);
		state[target] = FILLING;
		merges--;
		changed() }
	:: d_step { merges > 0 && target == NONE && (IS_SOURCE(3) || IS_SOURCE(4)) &&
		(state[3] == EMPTY || state[4] == EMPTY) ->
		compaction_choice_make(RECORDS, TABLES - 1);
		target = (state[3] == EMPTY -> 3 : 4);
		state[target] = FILLING;
		merges--;
		changed() }
	:: d_step { target != NONE && sources != 0 && merged < KEYS -> merge_keys() }
	FINISH
	/* filter_publish() */
	:: d_step { building_segment != NONE ->
		filter_tag[building_segment] = building_tag;
		filter_keys[building_segment] = building_keys;
		building_segment = NONE; building_tag = 0; building_keys = 0;
		filters-- }
	/* The WAL of what was committed without waiting reaches the disk. */
	:: atomic { CRASHES > 0 && flushed < merged -> flushed = merged }

	/*
	 * kill -9 of PostgreSQL: what is in progress is rolled back, locks and
	 * filters are gone, of the steps of a merge a prefix is left. The successor
	 * finds it by read_last_row().
	 */
	:: d_step { crashes > 0 ->
		crashes--;
		for (r : 0 .. CLAIMERS - 1) {
			row_segment[r] = NONE
		}
		for (c : 0 .. TABLES - 1) {
			segment_lock[c] = 0;
			filter_tag[c] = 0;
			filter_keys[c] = 0
		}
		building_segment = NONE; building_tag = 0; building_keys = 0;
		if
		:: target != NONE && flushed < merged ->
#ifdef POSITION_REMEMBERED
			r = merged; merged = flushed; truncate_target(); merged = r
#else
			merged = flushed; truncate_target()
#endif
		:: else
		fi;
		killed = started & ~ended;
		ended = started;
		if
		:: dump_open -> killed = killed | BIT(7); dump_open = false; is_older = 0
		:: else
		fi;
		key_lock = NOBODY }
	od
}

init
{
	atomic {
		state[0] = QUIET;
		tag[0] = 1;
		keys[0] = BIT(1);
		state[1] = CURRENT;
		current = 1;
		run dispatcher();
		c = 0;
		do
		:: c < CLAIMERS -> run claimer(c); c++
		:: c >= CLAIMERS && c < SESSIONS -> run looker(c); c++
		:: else -> break
		od;
#if DUMPS
		run dump();
#endif
		skip
	}
}
