/*
 * store.pml
 *		Promela model of the decoupled deduplication store: an id moves from its
 *		record to the store while others look for it.
 *
 * DELIVERIES copies of one incoming message are processed, at the same time or
 * one after the other; the dispatcher publishes, hands the id over, and lets the
 * record go; the store loses its newest writes, goes away, comes back, forgets
 * what is old. The ring itself is one variable here: record.pml is about it.
 * Each step carries the name of the C function that it stands for. Every read
 * of shared state and every change of it is a step of its own, so that anything
 * may come between. A broken variant is chosen by defining its name.
 *
 * With PARTS the store has two parts, as one in a Redis Cluster has sixteen: the id is
 * in one of them, each has a watermark, is written by a script of its own, and loses
 * its suffix by itself.
 *
 * Time is a clock of few ticks, the replay window WINDOW of them, and the
 * retention RETENTION.
 */
#ifndef DELIVERIES
#define DELIVERIES	2
#endif
#ifndef TICKS
#define TICKS		6
#endif
#ifndef LOSSES
#define LOSSES		0			/* times that the store loses a suffix */
#endif
#ifndef KILLS
#define KILLS		0			/* of the dispatcher */
#endif
#ifndef ABSENCES
#define ABSENCES	0			/* times that the store is away */
#endif
#ifndef ABORTS
#define ABORTS		1			/* 1: transactions may roll back */
#endif

#define WINDOW		2
#define RETENTION	3

/* The note of a look is too old from this age on: half of the window. */
#define LATE		1

byte now;

/* ------------------------------------------------------------------------
 * The record: in the ring of this database. And what windows know of it.
 * ------------------------------------------------------------------------ */

#define ABSENT		0
#define IN_PROGRESS	1
#define COMMITTED	2

byte record = ABSENT;
bool receipt;					/* the log still has the receipt */
bool published;					/* the window is in Redis */
byte published_at;

/* ------------------------------------------------------------------------
 * The store: the id, and the watermark of the newest window that was propagated.
 * 1 is the window of our id, 2 a later one.
 * ------------------------------------------------------------------------ */

bool in_store;
byte watermark;
byte other;						/* the watermark of the other part */
bool away;
bool was_added;
byte added_at;

/* ------------------------------------------------------------------------
 * The dispatcher's own state; what is on disk survives it.
 * ------------------------------------------------------------------------ */

byte expected;					/* the watermark that must be there */
byte expected_other;			/* the same in the other part */
bool propagated;
byte settled_at;				/* when we began, or lost ids were added again */
bool noted;						/* on disk: published_at of the segment */
byte noted_at;
bool later_window;				/* another one has been propagated */

/* ------------------------------------------------------------------------
 * The rule: processed once as long as it must be remembered. And the id is at
 * every moment in one place at least.
 * ------------------------------------------------------------------------ */

bool processed;

#define IS_FORGOTTEN	(was_added && now > added_at + RETENTION)

active proctype monitor()
{
end:
	atomic {
		processed && record != COMMITTED && !in_store && !IS_FORGOTTEN ->
		assert(false);			/* the id is nowhere */
	}
}

/* ------------------------------------------------------------------------
 * A delivery of the message: open_message.c, claim.c
 * ------------------------------------------------------------------------ */

/* record_ring_look() */
inline look_at_record()
{
	if
	:: atomic { record == COMMITTED -> goto duplicate }
	:: atomic { record != COMMITTED -> skip }
	fi
}

/* is_in_store(): an error is no answer. */
inline store_contains()
{
	if
#ifdef AWAY_IS_ABSENT
	:: atomic { away -> skip }
#else
	:: atomic { away -> goto failed }
#endif
	:: atomic { !away && in_store -> assert(published); goto duplicate }
	:: atomic { !away && !in_store -> skip }
	fi
}

/*
 * The note of the time stands before the second look: earlier, as in the code,
 * is only safer.
 */
inline claim_look_up()
{
#ifdef STORE_FIRST
	store_contains();
	looked_at = now;
	look_at_record()
#else
	look_at_record();
	looked_at = now;
	store_contains()
#endif
}

inline late_look()
{
	if
	:: atomic { now - looked_at >= LATE -> skip }
		store_contains()
	:: atomic { now - looked_at < LATE -> skip }
	fi
}

/* claim_message() */
inline claim_message()
{
#ifdef SECOND_LOOK_BEFORE_CLAIM
	late_look();
#endif
	/* claim_in(), with check_may_claim() */
	if
	:: atomic { record == COMMITTED -> goto duplicate }
	:: atomic { record == ABSENT && now > begun + RETENTION -> goto failed }
	:: atomic { record == ABSENT && now <= begun + RETENTION -> record = IN_PROGRESS; claimed = true }
	fi;
#if !defined(NO_SECOND_LOOK) && !defined(SECOND_LOOK_BEFORE_CLAIM)
	late_look()
#endif
}

proctype delivery()
{
	byte begun;
	byte looked_at;
	bool claimed;

	begun = now;
	claim_look_up();
	if
	:: claim_message();			/* pessimistic: begin claims */
		skip					/* the handler */
	:: skip;					/* optimistic: commit does */
		claim_message()
	fi;

	if
	:: atomic {					/* COMMIT, with a receipt in the log */
			claimed ->
			assert(!processed || IS_FORGOTTEN);
			if
			:: !processed ->
				processed = true;
				record = COMMITTED;
				receipt = true
			:: else ->			/* remembered long enough: the story ends here */
				record = ABSENT
			fi;
			claimed = false
		}
#if ABORTS
	:: skip;
		goto failed
#endif
	fi;
	goto done;

failed:
duplicate:
	atomic {
		if
		:: claimed -> record = ABSENT; claimed = false
		:: else -> skip
		fi
	}
done:
	skip
}

/* ------------------------------------------------------------------------
 * The dispatcher
 * ------------------------------------------------------------------------ */

/* publisher_publish_next() */
inline publish()
{
	atomic { published = true; published_at = now }
}

#ifdef PARTS
#ifdef OLDEST_OF_ONE
#define OLDEST		other
#else
#define OLDEST		(watermark < other -> watermark : other)
#endif
#else
#define OLDEST		watermark
#endif

/* watermark_text_write_next() */
#define RAISE(mark, expected_mark, window) \
	if \
	:: mark < window -> mark = window \
	:: else -> skip \
	fi; \
	expected_mark = mark

/* store_add(): the script compares the watermark. */
inline store_propagation_run()
{
	atomic {
		if
		:: watermark == expected ->
			in_store = true;
			if
			:: was_added -> settled_at = now
			:: else -> was_added = true
			fi;
			added_at = now;
			RAISE(watermark, expected, 1);
#ifndef PARTS
			propagated = true
#endif
		:: else -> compare_watermarks()
		fi
	}
#ifdef PARTS
	if
	:: atomic { !away && watermark == expected && watermark >= 1 && other == expected_other ->
			RAISE(other, expected_other, 1);
			propagated = true
		}
	:: atomic { away || watermark != expected || watermark < 1 || other != expected_other ->
			compare_watermarks()
		}
	fi
#endif
}

/* store_propagation_check(), watermark_text_oldest(); unless the store is away */
inline compare_watermarks()
{
	if
	:: away || (watermark == expected && other == expected_other) -> skip
	:: else ->
		expected = watermark;
		expected_other = other;
		if
		:: OLDEST < 1 -> propagated = false
		:: else -> skip
		fi
	fi
}

/* Another window, with ids of other messages. */
inline propagate_later_window()
{
	atomic {
		if
#ifdef NO_COMPARE
		:: true ->
#else
		:: watermark == expected && other == expected_other ->
#endif
			watermark = 2;
			expected = 2;
#ifdef PARTS
			other = 2;
			expected_other = 2;
#endif
			later_window = true
#ifndef NO_COMPARE
		:: else -> compare_watermarks()
#endif
		fi
	}
}

#ifdef ADD_BEFORE_PUBLISH
#define MAY_ADD		(!propagated && record == COMMITTED && receipt && !away)
#else
#define MAY_ADD		(!propagated && record == COMMITTED && receipt && published && !away)
#endif

/* note_published(): position_has_published() looks at what was propagated. */
#ifdef LET_GO_BEFORE_ADD
#define MAY_NOTE	(published && !noted)
#define IS_SOUND	true
#else
#define MAY_NOTE	(published && propagated && !noted)
#ifdef NO_WAIT_AFTER_LOSS
#define HAS_SETTLED	true
#else
#define HAS_SETTLED	(now >= settled_at + WINDOW)
#endif
#ifdef NO_CHECK
#define IS_SOUND	propagated
#else
#define IS_SOUND	(propagated && !away && watermark == expected && other == expected_other && HAS_SETTLED)	/* propagation_is_sound() */
#endif
#endif

#ifdef NO_REPLAY_WINDOW
#define IS_OLD		true
#else
#define IS_OLD		(now >= noted_at + WINDOW)
#endif

active proctype dispatcher()
{
	byte kills;

end:
	do
	:: atomic { record == COMMITTED && !published -> publish() }
	:: MAY_ADD ->
		if
		:: MAY_ADD -> store_propagation_run()
		:: else -> skip
		fi
	:: atomic { MAY_NOTE -> noted = true; noted_at = now }
	:: atomic { propagated && !later_window && !away -> propagate_later_window() }
#ifndef NO_CHECK
	:: atomic { was_added && !away && (watermark != expected || other != expected_other) -> compare_watermarks() }
#endif
		/* expiry_retire(), and the log's segment goes as well */
	:: atomic { noted && record == COMMITTED && IS_OLD && IS_SOUND -> record = ABSENT; receipt = false }
	:: atomic { kills < KILLS ->
			kills++;
			settled_at = now;
			/* The successor: position_load(), and the watermark that it finds. */
			if
			:: away -> propagated = false; expected = watermark; expected_other = other
			:: else ->
				expected = watermark;
				expected_other = other;
				propagated = noted && OLDEST >= 1
			fi
		}
	od
}

/* ------------------------------------------------------------------------
 * Time, and what happens to the store
 * ------------------------------------------------------------------------ */

active proctype clock()
{
	do
	:: now < TICKS -> now++
	:: now == TICKS -> break
	od
}

active proctype fate()
{
	byte losses, absences;

end:
	do
		/* A suffix that is younger than the replay window: of later ids, or all. */
	:: atomic { losses < LOSSES && was_added && now < added_at + WINDOW ->
			losses++;
			in_store = false;
			watermark = 0
		}
	:: atomic { losses < LOSSES && watermark == 2 -> losses++; watermark = 1 }
#ifdef PARTS
	:: atomic { losses < LOSSES && other > 0 && now < added_at + WINDOW -> losses++; other-- }
#endif
	:: atomic { absences < ABSENCES && !away -> absences++; away = true }
	:: atomic { away -> away = false }
		/* Keys expire, or records of the other database. */
	:: atomic { in_store && IS_FORGOTTEN -> in_store = false }
	od
}

init {
	byte n;

	atomic {
		do
		:: n < DELIVERIES -> run delivery(); n++
		:: else -> break
		od
	}
}
