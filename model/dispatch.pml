/*
 * dispatch.pml
 *		Promela model of dispatch: from the commit of a message to its stream.
 *
 * Each step carries the name of the C function that it stands for. What is
 * atomic here is one transaction, one run of the script, or one line of the
 * dispatcher between two of them; it may die, lose its link or be overtaken
 * between any two steps. Bounds are macros, so that one model serves several
 * scopes (see run). A broken variant is chosen by defining its name.
 *
 * Messages are 1..M in the order of their ids; even ones are for destination E,
 * which always accepts, odd ones for D, which breaks and heals. A transaction
 * enqueues one message. With -DPOISON=n message n, the only one of its
 * destination, breaks the link whenever it arrives, so no verdict on it ever comes.
 * With -DROTATIONS=n the log is n + 1 segments, of which the older ones expire.
 * With -DRUN=n up to n windows are sent together, so a batch may have messages of
 * several; with -DSERIES=n those that wait join them n at a time, all but the
 * first n while batches are under way; with -DOVERLAP=1 windows are also opened
 * meanwhile.
 */
#ifndef M
#define M			3			/* messages */
#endif
#ifndef BATCH
#define BATCH		1			/* outbox.batch_size */
#endif
#ifndef PG_CRASHES
#define PG_CRASHES	0
#endif
#ifndef KILLS
#define KILLS		0			/* kill -9 of the dispatcher */
#endif
#ifndef CUTS
#define CUTS		0			/* of the link to Redis */
#endif
#ifndef LATES
#define LATES		0			/* links given up whose packets arrive yet */
#endif
#ifndef LOSSES
#define LOSSES		0			/* restarts of Redis that lose a suffix */
#endif
#ifndef FLUSHES
#define FLUSHES		0			/* Redis emptied behind an open link */
#endif
#ifndef BREAKS
#define BREAKS		0			/* times that D breaks; it always heals */
#endif
#ifndef PROBES
#define PROBES		1			/* returns to D that may find it broken */
#endif
#ifndef CLOSES
#define CLOSES		0			/* closing windows */
#endif
#ifndef ABORTS
#define ABORTS		1
#endif
#ifndef ASYNC
#define ASYNC		1			/* synchronous_commit = off is possible */
#endif
#ifndef TURNS
#define TURNS		0			/* times that the dispatcher is wanted elsewhere amid a window */
#endif
#ifndef ROTATIONS
#define ROTATIONS	0			/* of the log */
#endif
#ifndef WINDOWS
#define WINDOWS		8			/* room for as many; asserted to suffice */
#endif
#ifndef RETURNS
#define RETURNS		6			/* likewise: transactions that return messages */
#endif
#ifndef RUN
#define RUN			1			/* windows that are sent together */
#endif
#ifndef SERIES
#define SERIES		RUN			/* how many of them are read at once */
#endif
#ifndef OVERLAP
#define OVERLAP		0			/* windows are opened while batches are under way */
#endif
#ifndef IN_FLIGHT
#define IN_FLIGHT	2			/* pages_allowed() */
#endif

#ifndef FENCE_NOT_CLAIMED
#define CLAIM
#endif

/*
 * A row's place in the order of a window: its id. Where messages are returned
 * with a new id (a broken variant) the returned ones come last.
 */
#ifdef RETURN_WITH_NEW_ID
#define PLACES		(2 * M)
#define ID_AT(place) ((place) > M -> (place) - M : (place))
#define RETURNED(ids) ((ids) << M)
#else
#define PLACES		M
#define ID_AT(place) (place)
#define RETURNED(ids) (ids)
#endif

/* Instead of a row's place in a fence: the whole window is dealt with. */
#define END			(PLACES + 1)

/* A row's spot in the order in which a run of windows is sent: by window, then by place. */
#define SPOTS		(RUN * PLACES)
#ifdef RUN_SORTED_BY_ID
#define SPOT(offset, place)	(((place) - 1) * RUN + (offset) + 1)
#define OFFSET(spot)	(((spot) - 1) % RUN)
#define PLACE(spot)		(((spot) - 1) / RUN + 1)
#define AFTER(offset, place) ((place) * RUN + 1)
#else
#define SPOT(offset, place)	((offset) * PLACES + (place))
#define OFFSET(spot)	(((spot) - 1) / PLACES)
#define PLACE(spot)		(((spot) - 1) % PLACES + 1)
#define AFTER(offset, place) (SPOT(offset, place) + 1)
#endif
#define ID(spot)		ID_AT(PLACE(spot))
#if RUN * M > 4
#define SPOT_SET		short
#else
#define SPOT_SET		byte
#endif

#define BIT(n)		(1 << ((n) - 1))
#define HAS(set, n)	(((set) >> ((n) - 1)) & 1)
#define IS_D(id)	((id) & 1)

/* ------------------------------------------------------------------------
 * PostgreSQL: transactions, WAL with a durable prefix, tables
 * ------------------------------------------------------------------------ */

mtype:tx = { NONE, OPEN, COMMITTED, GONE };
mtype:tx tx_state[M + 1];
byte tx_xid[M + 1];
byte enqueued;					/* ids drawn from the sequence */
byte committed;					/* set of messages that snapshots see */
byte durable;					/* subset whose commit is on disk */
byte next_xid = 1;
byte logged_xid = 1;			/* none below it is handed out again */

/* Commits that are visible and not on disk yet, in the order of the WAL. */
byte wal[M + WINDOWS];
byte wal_n;
#define WAL_WINDOW	0			/* an entry: the newest window; else a message */

/* outbox.window_*: what a snapshot sees, and `published`. */
byte windows = 1;
byte w_xmax[WINDOWS + 1];
short w_xip[WINDOWS + 1];
byte w_published[WINDOWS + 1];
#define SEES(xmax, xip, xid)	((xid) < (xmax) && !HAS(xip, xid))

/* Ghost: what the window held when it was opened. */
byte w_rows[WINDOWS + 1];
byte w_returns[WINDOWS + 1];

/* Messages returned to the log, by the transaction that returned them. */
byte returns;
byte r_xid[RETURNS + 1];
byte r_ids[RETURNS + 1];

/* outbox.deferred: state 'waiting', or returned_tx. */
byte waiting;
byte returned_tx[M + 1];
#ifdef POISON
byte aside;						/* waiting likewise, but not returned any more */
#define IS_ASIDE(id)	HAS(aside, id)
#define KEPT			aside
#else
#define IS_ASIDE(id)	false
#define KEPT			0
#endif

/* Ghost: the messages that had committed when this one was enqueued. */
byte earlier[M + 1];

/* outbox.loss. Ghost: the messages that may be missing in Redis by what it says. */
byte told_missing;

#if ROTATIONS
/* Segments of the log and of windows; none is used again. */
#define SEGMENTS	(ROTATIONS + 1)
#define CURRENT		0
#define SEALED		1
#define QUIET		2
#define PUBLISHED	3			/* published_at is set */
#define RETIRED		4
#define EMPTY		5
byte current;
byte seg_state[SEGMENTS];
byte seg_first[SEGMENTS];		/* its first window, which the one before it has, too */
byte seg_tx[SEGMENTS];			/* transaction that made it quiet */
byte m_seg[M + 1];				/* where the row of a message is, */
byte r_seg[RETURNS + 1];		/* the rows that were returned, */
byte t_seg[M + 1];				/* and the original of one in outbox.deferred: log_segment */
#define IS_LIVE(n)			(seg_state[n] < RETIRED)
#define ROW_IS_THERE(id)	IS_LIVE(m_seg[id])
#define RETURN_IS_THERE(n)	IS_LIVE(r_seg[n])

/* window_row_oldest_number(): from there on all are kept up to the newest. */
#if ROTATIONS == 1
#define OLDEST		(current == 0 || IS_LIVE(0) -> FIRST_WINDOW : seg_first[1])
#else
#define OLDEST		(current == 0 -> FIRST_WINDOW : (!IS_LIVE(current - 1) -> seg_first[current] : \
						(current == 1 || IS_LIVE(0) -> FIRST_WINDOW : seg_first[1])))
#endif
#else
#define ROW_IS_THERE(id)	true
#define RETURN_IS_THERE(n)	true
#define OLDEST		FIRST_WINDOW
#endif

/* ------------------------------------------------------------------------
 * Redis and the link
 * ------------------------------------------------------------------------ */

typedef Fence {
	byte window;				/* 0 = there is none */
	byte last;
#ifdef CLAIM
	byte claim;					/* which connection took the fence over */
#endif
}
#ifdef CLAIM
#define SAME(a, b)	(a.window == b.window && a.last == b.last && a.claim == b.claim)
#define COPY(a, b)	a.window = b.window; a.last = b.last; a.claim = b.claim
#else
#define SAME(a, b)	(a.window == b.window && a.last == b.last)
#define COPY(a, b)	a.window = b.window; a.last = b.last
#endif

typedef Batch {
	SPOT_SET rows;				/* set of spots; 0 = no batch */
	byte base;					/* first window of the run that the spots are in */
	Fence builds_on;
};

/* The window that the fence names for a row of a batch. */
#ifdef FENCE_NAMES_FIRST_WINDOW
#define WINDOW(batch, spot)	(batch.base)
#else
#define WINDOW(batch, spot)	(batch.base + OFFSET(spot))
#endif

/* What Redis answered to a batch. */
#define NO_ANSWER	0
#define ADDED		1
#define MOVED		2			/* the fence is not what the batch builds on */
#define REFUSED		3			/* REFUSED + spot of the message */

Fence fence;					/* outbox:fence:<uuid> */
byte streams;					/* set of messages that the streams hold */
bool broken;					/* D refuses */
bool is_due;					/* deferred.next_attempt of the head has come */

/* What a restart goes back to. */
bool is_saved;
Fence saved_fence;
byte saved_streams;

bool link_is_up;				/* as the network has it */
Batch flying[IN_FLIGHT];		/* oldest first */
byte answer[IN_FLIGHT];
byte in_flight;
Batch late[IN_FLIGHT];			/* of a link that was given up */

byte pg_crashes = PG_CRASHES;
byte kills = KILLS;
byte cuts = CUTS;
byte lates = LATES;
byte losses = LOSSES;
byte flushes = FLUSHES;
byte breaks = BREAKS;
byte probes = PROBES;
byte closes = CLOSES;
byte aborts = ABORTS;
byte turns = TURNS;

/* ------------------------------------------------------------------------
 * The dispatcher's memory
 * ------------------------------------------------------------------------ */

bool killed;
bool connected;					/* redis_session_is_open() */

/* Position */
byte opened;					/* number of the newest window */
byte looked_xmax;
short looked_xip;
byte published;
byte sent;
byte touched;
byte touched_upto;
byte resume_after;
#define CAUGHT_UP	(sent == opened)
#define FIRST_WINDOW 1

/* Delivery */
SPOT_SET rows;					/* set of spots in the run that is being published */
byte base;						/* its first window */
byte run_n;						/* how many windows it has */
byte next;						/* first spot that is not in a batch yet */
#ifdef READ_BEFORE_IS_FRESH
byte fresh;						/* first spot that was not read before, as far as the run went then */
#endif
byte due;						/* under_way->n: verdicts to come, be the link up or not */
Fence my_fence;					/* value in Redis when all under way is done */
Batch made;						/* the batch that was made last */
#define LAST			(base + run_n - 1)
#define MORE			(next <= SPOTS && (rows >> (next - 1)) != 0)

#ifdef POISON
/* Suspects; one strike does where the code wants three. */
byte suspect_window;			/* 0 = there are none */
byte suspects_upto;
byte alone_window;
byte alone;						/* the one that the link failed on when it was sent alone */
byte tried_window;
byte tried;						/* last message of the batch that was sent last */
#define IS_SUSPECT		(suspect_window >= base && next <= SPOT(suspect_window - base, suspects_upto))
#define BATCH_SIZE		(IS_SUSPECT -> 1 : BATCH)
#define BATCHES_ALLOWED	(IS_SUSPECT -> 1 : IN_FLIGHT)
#define BREAKS_LINK(batch) HAS(batch.rows, POISON)
#else
#define BATCH_SIZE		BATCH
#define BATCHES_ALLOWED	IN_FLIGHT
#define BREAKS_LINK(batch) false
#endif

/* Blocked, of destination D; head and number waiting are as in the table. */
mtype:blocked = { UNBLOCKED, BLOCKED_WAITING, BLOCKED_PROBING, BLOCKED_DRAINING };
mtype:blocked blocked;

/* A new window, between the look and its commit. */
byte now_xmax;
short now_xip;
byte found_rows;
byte found_returns;

/* Scratch; always 0 between two steps. */
hidden byte i;
hidden byte j;
hidden byte k;
hidden byte n;
hidden byte last;
hidden byte added;
hidden SPOT_SET undone;
hidden byte verdict;

/* ------------------------------------------------------------------------
 * PostgreSQL
 * ------------------------------------------------------------------------ */

/* XLogFlush(): a synchronous commit puts all before it on disk, too. */
inline flush()
{
	durable = committed;
	for (i : 0 .. M + WINDOWS - 1) {
		wal[i] = 0;
	}
	wal_n = 0;
	logged_xid = next_xid;
}

/* transaction_begin(): GetTransactionSnapshot(). */
inline take_snapshot()
{
	now_xmax = next_xid;
	now_xip = 0;
	for (i : 1 .. M) {
		if
		:: tx_state[i] == OPEN -> now_xip = now_xip | BIT(tx_xid[i])
		:: else
		fi
	}
#ifdef SNAPSHOT_BY_ID
	/* As if ids committed in order: the position is the greatest id. */
	now_xip = 0;
	for (i : 1 .. M) {
		if
		:: HAS(committed, i) -> now_xmax = i + 1
		:: else
		fi
	}
#endif
}

#ifdef SNAPSHOT_BY_ID
#define XID(id)		id
#else
#define XID(id)		tx_xid[id]
#endif

/*
 * log_scan(): read_new_transactions() and read_ended_transactions(). The
 * probe for transactions of `after` that have ended includes those committed.
 */
inline collect(a_xmax, a_xip, u_xmax, u_xip)
{
	found_rows = 0;
	found_returns = 0;
	for (i : 1 .. M) {
		if
		:: HAS(committed, i) && ROW_IS_THERE(i) &&
		   ((XID(i) >= a_xmax && XID(i) < u_xmax) || HAS(a_xip, XID(i))) &&
		   SEES(u_xmax, u_xip, XID(i)) -> found_rows = found_rows | BIT(i)
		:: else
		fi
	}
	for (i : 1 .. returns) {
		if
		:: r_xid[i] >= a_xmax && SEES(u_xmax, u_xip, r_xid[i]) && RETURN_IS_THERE(i) ->
			found_returns = found_returns | BIT(i)
		:: else
		fi
	}
}

/* Set of places of a window's rows. */
inline places(set, row_ids, return_txs)
{
	set = row_ids;
	for (i : 1 .. returns) {
		if
		:: HAS(return_txs, i) ->
			/* collect_row(): an id is in a window only once. */
			assert((set & RETURNED(r_ids[i])) == 0);
			set = set | RETURNED(r_ids[i])
		:: else
		fi
	}
}

/* A crash loses what is not on disk: a suffix, from entry `kept` of the WAL. */
inline recover(kept)
{
	for (i : kept .. wal_n) {
		if
		:: i < wal_n && wal[i] == WAL_WINDOW ->
			w_xmax[windows] = 0; w_xip[windows] = 0; w_published[windows] = 0;
			w_rows[windows] = 0; w_returns[windows] = 0;
			windows--
		:: i < wal_n && wal[i] != WAL_WINDOW ->
			committed = committed & ~BIT(wal[i]);
			tx_xid[wal[i]] = 0;
			tx_state[wal[i]] = GONE
		:: else
		fi
	}
	for (i : 1 .. M) {
		if
		:: tx_state[i] == OPEN -> tx_state[i] = GONE; tx_xid[i] = 0
		:: else
		fi
	}
}

/* ------------------------------------------------------------------------
 * Redis
 * ------------------------------------------------------------------------ */

/* publish.lua: up to the first message that fails. */
#ifdef SCRIPT_DOES_NOT_STOP
#define GOES_ON		true
#else
#define GOES_ON		(verdict == ADDED)
#endif

inline run_script(batch)
{
	verdict = ADDED;
	last = 0;
	added = 0;
	if
#ifndef NO_COMPARE
	:: !SAME(fence, batch.builds_on) -> verdict = MOVED
#endif
	:: else ->
		for (i : 1 .. SPOTS) {
			if
			:: HAS(batch.rows, i) -> added = i
			:: else
			fi;
			if
			:: HAS(batch.rows, i) && GOES_ON ->
				if
				:: IS_D(ID(i)) && broken -> verdict = (verdict == ADDED -> REFUSED + i : verdict)
				:: else ->
					/* Rules 1 and 2: no ghost, and nothing before it is on disk. */
					assert(HAS(durable, ID(i)));
					/* Rule 4: none twice, for this Redis keeps a prefix. */
					assert(!HAS(streams, ID(i)));
					/* The order of each stream. */
					for (k : 1 .. M) {
						assert(!(HAS(earlier[ID(i)], k) && IS_D(k) == IS_D(ID(i))) ||
							HAS(streams, k) || HAS(told_missing, k));
					}
					streams = streams | BIT(ID(i));
					last = i
				fi
			:: else
			fi
		}
		if
		:: last != 0 ->
#ifdef PARTIAL_NAMES_LAST_WINDOW
			fence.window = WINDOW(batch, added);
#else
			fence.window = WINDOW(batch, last);
#endif
			fence.last = PLACE(last);
#ifdef CLAIM
			fence.claim = batch.builds_on.claim
#endif
		:: else
		fi
	fi
}

/* If Redis is to lose something, it may be what comes from here on. */
inline maybe_save()
{
	if
	:: losses > 0 && !is_saved ->
		is_saved = true;
		COPY(saved_fence, fence);
		saved_streams = streams
	:: true
	fi
}

inline clear_fence(value)
{
#ifdef CLAIM
	value.claim = 0;
#endif
	value.window = 0; value.last = 0
}

inline clear_batch(batch)
{
	batch.rows = 0; batch.base = 0;
	clear_fence(batch.builds_on)
}

inline copy_batch(to, from)
{
	to.rows = from.rows; to.base = from.base;
	COPY(to.builds_on, from.builds_on)
}

inline forget_flying()
{
	for (j : 0 .. IN_FLIGHT - 1) {
		clear_batch(flying[j]);
		answer[j] = NO_ANSWER
	}
	j = 0;
	in_flight = 0
}

inline clear_late()
{
	for (j : 0 .. IN_FLIGHT - 1) {
		clear_batch(late[j])
	}
	j = 0
}

/* The oldest batch is done with. */
inline shift_flying()
{
	for (j : 1 .. IN_FLIGHT - 1) {
		copy_batch(flying[j - 1], flying[j])
	}
	j = 0;
	clear_batch(flying[IN_FLIGHT - 1])
}

inline shift_late()
{
	for (j : 1 .. IN_FLIGHT - 1) {
		copy_batch(late[j - 1], late[j])
	}
	j = 0;
	clear_batch(late[IN_FLIGHT - 1])
}

/*
 * The link is gone. What Redis has not run by now it never will, or, if the
 * packets are still under way, at any later time.
 */
inline give_up()
{
	if
	:: in_flight > 0 && answer[in_flight - 1] == NO_ANSWER && lates > 0 && late[0].rows == 0 ->
		lates--;
		d_step {
			for (j : 0 .. IN_FLIGHT - 1) {
				copy_batch(late[j], flying[j])
			}
			for (k : 1 .. IN_FLIGHT - 1) {
				if
				:: answer[k - 1] != NO_ANSWER -> shift_late()
				:: else
				fi
			}
			k = 0
		}
	:: true
	fi;
	forget_flying();
	link_is_up = false
}

/* ------------------------------------------------------------------------
 * What happens around the dispatcher
 * ------------------------------------------------------------------------ */

/* Sessions: outbox_enqueue() draws the id; then COMMIT or ROLLBACK. */
active proctype sessions()
{
	byte m;

end:
	do
	:: atomic { enqueued < M ->
		d_step {
			enqueued++;
			tx_state[enqueued] = OPEN;
			tx_xid[enqueued] = next_xid;
			next_xid++;
#if ROTATIONS
			m_seg[enqueued] = current;
#endif
			earlier[enqueued] = committed;
		} }
	:: atomic {
		if
		:: tx_state[1] == OPEN -> m = 1
		:: M >= 2 && tx_state[2] == OPEN -> m = 2
#if M >= 3
		:: tx_state[3] == OPEN -> m = 3
#endif
#if M >= 4
		:: tx_state[4] == OPEN -> m = 4
#endif
		fi;
		if
		:: d_step {				/* synchronous commit */
			tx_state[m] = COMMITTED;
			committed = committed | BIT(m);
			flush() }
		:: ASYNC -> d_step {	/* asynchronous: visible at once */
			tx_state[m] = COMMITTED;
			committed = committed | BIT(m);
			wal[wal_n] = m;
			wal_n++ }
		:: aborts > 0 -> aborts--; tx_state[m] = GONE; tx_xid[m] = 0
		fi;
		m = 0 }
	od
}

/*
 * append_window() takes its transaction id after the snapshot, so where the
 * window survives no id below xmax is handed out again.
 */
#ifdef WINDOW_HAS_NO_XID
#define XID_OF_WINDOW	0
#else
#define XID_OF_WINDOW	w_xmax[windows]
#endif

/* Redis has run all batches before this one. */
#define IS_NEXT(slot)	(link_is_up && in_flight > slot && answer[slot - 1] != NO_ANSWER && answer[slot] == NO_ANSWER)

/* Faults, all of them bounded in number. */
active proctype world()
{
	byte kept;
	bool used;

end:
	do
	/* kill -9 of PostgreSQL, power cut: any prefix of the WAL that has at least
	 * what was flushed survives. */
	:: atomic { pg_crashes > 0 && (wal_n > 0 || !killed) ->
		pg_crashes--;
		do
		:: kept < wal_n -> kept++
		:: break
		od;
		skip;
		d_step { recover(kept); kept = 0 };
		/* Of the transaction ids handed out since, as many as were logged. */
		do
		:: next_xid > logged_xid && next_xid > XID_OF_WINDOW -> d_step {
			for (i : 1 .. M) {
				if
				:: tx_state[i] == COMMITTED && tx_xid[i] == next_xid - 1 -> used = true
				:: else
				fi
			} }
			if
			:: !used -> next_xid--
			:: else -> break
			fi
		:: break
		od;
		skip;
		d_step { used = false; flush(); killed = true } }

	:: atomic { kills > 0 && !killed -> kills--; killed = true }

	:: atomic { cuts > 0 && link_is_up -> cuts--; give_up() }

	/* Redis runs the oldest batch that it has not run. */
	:: atomic { link_is_up && in_flight > 0 && answer[0] == NO_ANSWER && !BREAKS_LINK(flying[0]) ->
		maybe_save();
		d_step { run_script(flying[0]); answer[0] = verdict; verdict = 0; last = 0; added = 0; i = 0; k = 0 } }
	:: atomic { IS_NEXT(1) && !BREAKS_LINK(flying[1]) ->
		maybe_save();
		d_step { run_script(flying[1]); answer[1] = verdict; verdict = 0; last = 0; added = 0; i = 0; k = 0 } }
#if IN_FLIGHT > 2
	:: atomic { IS_NEXT(2) && !BREAKS_LINK(flying[2]) ->
		maybe_save();
		d_step { run_script(flying[2]); answer[2] = verdict; verdict = 0; last = 0; added = 0; i = 0; k = 0 } }
#endif

#ifdef POISON
	/* Or it ends the link because of it. */
	:: atomic { link_is_up && in_flight > 0 && answer[0] == NO_ANSWER && BREAKS_LINK(flying[0]) -> give_up() }
	:: atomic { IS_NEXT(1) && BREAKS_LINK(flying[1]) -> give_up() }
#endif

	/* A late packet arrives, or never will. */
	:: atomic { late[0].rows != 0 ->
		if
		:: maybe_save();
			d_step {
				run_script(late[0]);
				shift_late();
				verdict = 0; last = 0; added = 0; i = 0; k = 0 }
		:: d_step { clear_late() }
		fi }

	/* Redis restarts and has lost the newest of what it acknowledged. */
	:: atomic { is_saved && losses > 0 -> d_step {
		losses--;
		is_saved = false;
		COPY(fence, saved_fence);
		streams = saved_streams;
		clear_fence(saved_fence);
		saved_streams = 0;
		clear_late();
		forget_flying();
		link_is_up = false } }

	/* FLUSHALL. */
	:: atomic { flushes > 0 && streams != 0 -> d_step {
		flushes--;
		streams = 0;
		clear_fence(fence);
		is_saved = false;
		clear_fence(saved_fence);
		saved_streams = 0 } }

	:: atomic { breaks > 0 && !broken -> breaks--; broken = true }
	:: broken -> broken = false

	/* outbox.retry_delay has passed. */
	:: waiting != 0 && !is_due -> is_due = true
	od
}

/* ------------------------------------------------------------------------
 * The dispatcher
 * ------------------------------------------------------------------------ */

inline forget_run()
{
	rows = 0; base = 0; run_n = 0; next = 0;
#ifdef READ_BEFORE_IS_FRESH
	fresh = 0
#endif
}

/* redis_link_fail(), redis_link_close(). */
inline disconnect()
{
	if
	:: link_is_up -> give_up()
	:: else
	fi;
	connected = false;
	forget_run(); due = 0;
	clear_fence(my_fence)
}

/* dispatcher_setup_load(): position_load(), deferral_load(). */
inline dispatcher_setup_load()
{
	opened = windows;
	looked_xmax = w_xmax[windows];
	looked_xip = w_xip[windows];
	published = (w_published[windows] > OLDEST -> w_published[windows] : OLDEST);
	sent = published;
	touched = windows;
	touched_upto = PLACES;
	resume_after = 0;
	blocked = (waiting != 0 -> BLOCKED_WAITING : UNBLOCKED)
}

#ifdef POISON
/* Memory of what is suspect, when the window has been sent or one has given way. */
inline clear_suspects()
{
	suspect_window = 0; suspects_upto = 0; alone_window = 0; alone = 0; tried_window = 0; tried = 0
}
#endif

/* Memory of a process that is dead. */
inline forget_all()
{
	connected = false;
	opened = 0; looked_xmax = 0; looked_xip = 0;
	published = 0; sent = 0; touched = 0; touched_upto = 0; resume_after = 0;
	forget_run(); due = 0;
#ifdef POISON
	clear_suspects();
#endif
	clear_fence(my_fence);
	clear_batch(made);
	blocked = UNBLOCKED;
	now_xmax = 0; now_xip = 0; found_rows = 0; found_returns = 0
}

/* append_window() and the commit of its transaction. */
inline append_window(xmax, xip, is_closing)
{
	windows++;
	assert(windows <= WINDOWS);
	w_xmax[windows] = xmax;
	w_xip[windows] = xip;
	w_published[windows] = (is_closing -> windows : published);
	w_rows[windows] = found_rows;
	w_returns[windows] = found_returns;
	opened = windows;
	looked_xmax = xmax;
	looked_xip = xip
}

/* redis_session_renew() when connecting: the fence is as read. */
#define FENCE_IS_MINE	(link_is_up && SAME(fence, my_fence))

/* loss_note_before(), loss_note_expired(): what was enqueued before the end of a window may be missing. */
inline loss_note(number)
{
	/* It is no false alarm. */
	assert(losses < LOSSES || flushes < FLUSHES);
	for (i : 1 .. number) {
		told_missing = told_missing | w_rows[i]
	}
	i = 0
}

/* resume_from_oldest() */
inline resume_from_oldest()
{
	sent = (published > OLDEST -> OLDEST : published);
	if
#ifndef LOSS_NOT_TOLD
	:: sent > FIRST_WINDOW -> loss_note(sent)
#endif
	:: else
	fi
}

/* Whether Redis may lack what the oldest window that is kept ends with. */
#ifdef OLDEST_FENCE_TRUSTED
#define IS_TOO_OLD(f)	(f.window < OLDEST)
#else
#define IS_TOO_OLD(f)	(f.window < OLDEST || (f.window == OLDEST && f.last != END))
#endif

/* resume_position(): where the fence says. */
inline resume_position()
{
	resume_after = 0;
	sent = published;
#ifdef POSITION_FROM_NEWEST_WINDOW_ALONE
	sent = opened;
	published = opened
#else
	if
	:: my_fence.window == 0 ->
		/* resume_without_fence(), outbox.redis_data_loss = replay */
		if
		:: published > FIRST_WINDOW -> resume_from_oldest()
		:: else
		fi
	:: my_fence.window != 0 && IS_TOO_OLD(my_fence) -> resume_from_oldest()
	:: else ->
		assert(my_fence.window <= windows);
		sent = my_fence.window;
		if
		:: my_fence.last != END && my_fence.window > OLDEST -> sent = my_fence.window - 1; resume_after = my_fence.last
		:: else
		fi;
		published = (published > sent -> published : sent)
	fi
#endif
}

/* Rows up to this place were read before: note_read(). */
#define TOUCHES(window, place)	((window) < touched || ((window) == touched && (place) <= touched_upto))

/* take_row(): whether it is looked up if a row was deferred. */
#ifdef READ_BEFORE_IS_FRESH
#define IS_LOOKED_UP(spot)	((spot) < fresh)
#else
#define IS_LOOKED_UP(spot)	TOUCHES(base + OFFSET(spot), PLACE(spot))
#endif

/* tombstones_hold(): kept in outbox.deferred, or returned as another row. */
#if defined(REREAD_NOT_LOOKED_UP)
#define LEAVES_OUT(spot)	false
#elif defined(TOMBSTONE_FORGOTTEN)
#define LEAVES_OUT(spot)	HAS(waiting, ID(spot))
#else
#define LEAVES_OUT(spot)	(HAS(waiting, ID(spot)) || IS_ASIDE(ID(spot)) || (returned_tx[ID(spot)] != 0 && \
							!HAS(w_returns[base + OFFSET(spot)], returned_tx[ID(spot)])))
#endif

/* deferral_try_defer(), must_wait(): one of D with a lower id waits. */
#ifdef NO_DIVERSION
#define DIVERTS(id)		false
#else
#define DIVERTS(id)		(IS_D(id) && (waiting & (BIT(id) - 1)) != 0)
#endif

/* write_row(): the row in this window is the last original now. */
#if ROTATIONS
#ifdef TOMBSTONE_OF_FIRST_ORIGINAL
#define note_original(id)	t_seg[id] = m_seg[id]
#else
#define note_original(id)	t_seg[id] = (returned_tx[id] != 0 -> r_seg[returned_tx[id]] : m_seg[id])
#endif
#else
#define note_original(id)	skip
#endif

#ifdef RUN_SORTED_BY_ID
#define RUN_END			SPOTS
#else
#define RUN_END			(run_n * PLACES)
#endif

/* page_make(): one transaction; what is left out of the batch is on disk. */
inline page_make()
{
	clear_batch(made);
	n = 0;
	added = 0;
	k = BATCH_SIZE;
	for (i : 1 .. RUN_END) {
		if
		:: i >= next && added < k ->
			if
			:: HAS(rows, i) && IS_LOOKED_UP(i) && LEAVES_OUT(i)
			:: HAS(rows, i) && !(IS_LOOKED_UP(i) && LEAVES_OUT(i)) && DIVERTS(ID(i)) ->
				/* write_row() */
				waiting = waiting | BIT(ID(i));
				note_original(ID(i));
				returned_tx[ID(i)] = 0;
				n = 1
			:: HAS(rows, i) && !(IS_LOOKED_UP(i) && LEAVES_OUT(i)) && !DIVERTS(ID(i)) ->
				made.rows = made.rows | BIT(i);
				added++
			:: else
			fi;
			next = i + 1
		:: else
		fi
	}
	made.base = base;
	COPY(made.builds_on, my_fence);
#ifdef READ_BEFORE_IS_FRESH
	fresh = (fresh > next -> fresh : next);
#endif
	/* note_read() */
	k = OFFSET(next - 1) + base;
	if
	:: next > 1 && !TOUCHES(k, PLACE(next - 1)) ->
#ifdef READ_NOTED_IN_FIRST_WINDOW
		if
		:: k > base -> k = base; touched = k; touched_upto = PLACES
		:: else -> touched = k; touched_upto = PLACE(next - 1)
		fi
#else
		touched = k; touched_upto = PLACE(next - 1)
#endif
	:: else
	fi;
	k = 0;
	if
	:: n -> flush()
	:: else
	fi;
	n = 0; added = 0; i = 0
}

/* What send_page() does with a batch that was made. */
inline send_page()
{
	for (i : 1 .. SPOTS) {
		if
		:: HAS(made.rows, i) ->
			my_fence.window = WINDOW(made, i); my_fence.last = PLACE(i);
#ifdef POISON
			tried_window = WINDOW(made, i); tried = PLACE(i)
#endif
		:: else
		fi
	}
	copy_batch(flying[in_flight], made);
	clear_batch(made);
	in_flight++;
	due++;
	i = 0
}

#ifdef POISON
#define TRIED_IS_SUSPECT (suspect_window > tried_window || (suspect_window == tried_window && tried <= suspects_upto))

/* suspects_note_strike(): the link has failed, and nothing tells why. */
inline suspects_note_strike()
{
	if
	:: tried == 0
	:: tried != 0 && TRIED_IS_SUSPECT -> alone_window = tried_window; alone = tried
	:: tried != 0 && !TRIED_IS_SUSPECT ->
		suspect_window = tried_window; suspects_upto = tried; alone_window = 0; alone = 0
	fi;
	tried_window = 0; tried = 0
}

/*
 * defer_culprit(), page_defer_rows(). With one strike instead of three it may be
 * that Redis has it and only the answer is lost: then the fence is behind it.
 */
inline defer_culprit()
{
	if
	:: alone != 0 && alone_window >= base && alone_window <= LAST ->
#ifdef FIRST_ROW_GIVES_WAY
		k = next;
		do
		:: k <= SPOTS && !HAS(rows, k) -> k++
		:: else -> break
		od;
		if
		:: k <= SPOTS && !LEAVES_OUT(k) -> aside = aside | BIT(ID(k)); flush()
		:: else
		fi;
#else
		k = SPOT(alone_window - base, alone);
		if
		:: k >= next -> aside = aside | BIT(ID(k)); flush()
		:: else
		fi;
#endif
		k = 0;
		clear_suspects()
	:: else
	fi;
	i = 0
}
#endif

/*
 * defer_refused(): after drain_behind(). The fence is back at the message before;
 * page_defer_rows() keeps the refused ones and commits.
 */
inline defer_refused()
{
	n = answer[0] - REFUSED;
	COPY(my_fence, flying[0].builds_on);
	for (i : 1 .. SPOTS) {
		if
		:: HAS(flying[0].rows, i) && i < n -> my_fence.window = WINDOW(flying[0], i); my_fence.last = PLACE(i)
		:: else
		fi
	}
	/* deferral_defer_refused(); those of D behind it in the batch are refused alike */
#ifdef FENCE_PASSES_BEFORE_DIVERSION_COMMITS
	uncommitted = ID(n);
#else
	last = n;
	for (i : 1 .. SPOTS) {
		if
		:: HAS(flying[0].rows, i) && i >= n && IS_D(ID(i)) ->
			waiting = waiting | BIT(ID(i));
			note_original(ID(i));
			returned_tx[ID(i)] = 0;
			last = i
		:: else
		fi
	}
	flush();
	blocked = BLOCKED_WAITING;
#ifdef GOES_ON_BEHIND_LAST_REFUSED
	n = last;
#endif
	last = 0;
#endif
	is_due = false;
	next = n + 1;
	due = 0;
	forget_flying();
	n = 0; i = 0
}

#ifdef FENCE_PASSES_BEFORE_DIVERSION_COMMITS
byte uncommitted;

inline defer_at_last()
{
	if
	:: uncommitted != 0 ->
		waiting = waiting | BIT(uncommitted);
		returned_tx[uncommitted] = 0;
		flush();
		blocked = BLOCKED_WAITING;
		uncommitted = 0
	:: else
	fi
}
#endif

/* due_messages_return(): probe_due() returns one, drain() all the rest. */
inline due_messages_return()
{
	returns++;
	assert(returns <= RETURNS);
	r_xid[returns] = next_xid;
	next_xid++;
#if ROTATIONS
	r_seg[returns] = current;
#endif
	if
	:: blocked == BLOCKED_WAITING ->
		r_ids[returns] = waiting & (256 - waiting);		/* ORDER BY id LIMIT 1 */
		blocked = BLOCKED_PROBING;
		if
		:: broken -> probes--
		:: else
		fi
	:: else ->
		r_ids[returns] = waiting;
		blocked = UNBLOCKED		/* blocked_file() */
	fi;
	for (i : 1 .. M) {
		if
		:: HAS(r_ids[returns], i) -> returned_tx[i] = returns
		:: else
		fi
	}
	waiting = waiting & ~r_ids[returns];
	is_due = false;
	flush();
	i = 0
}

/* drain_behind() */
#if IN_FLIGHT > 2
#define IS_DRAINED			((in_flight < 2 || answer[1] == MOVED) && (in_flight < 3 || answer[2] == MOVED))
#define RUNS_BEHIND_REFUSED	((in_flight > 1 && answer[1] != MOVED && answer[1] != NO_ANSWER) || \
								(in_flight > 2 && answer[2] != MOVED && answer[2] != NO_ANSWER))
#else
#define IS_DRAINED			(in_flight == 1 || answer[1] == MOVED)
#define RUNS_BEHIND_REFUSED	(in_flight == 2 && answer[1] != MOVED && answer[1] != NO_ANSWER)
#endif

/* due_messages_ms_until(). How often D is tried in vain is bounded. */
#define RETURN_IS_DUE	(waiting != 0 && (blocked == BLOCKED_DRAINING || \
							(blocked == BLOCKED_WAITING && is_due && (!broken || probes > 0))))
#ifdef RETURN_WHILE_WINDOW_OPEN
#define MAY_RETURN		true
#else
#define MAY_RETURN		(CAUGHT_UP && connected)
#endif

/* Whether a snapshot taken now would show the dispatcher anything new. */
#define UNSEEN(id)		(HAS(committed, id) && !SEES(looked_xmax, looked_xip, XID(id)))
#define NEWS			(UNSEEN(1) || (M >= 2 && UNSEEN(2)) || (M >= 3 && UNSEEN(3)) || (M >= 4 && UNSEEN(4)) || \
							(returns > 0 && !SEES(looked_xmax, looked_xip, r_xid[returns])))

/* Nothing is left to do, as far as the dispatcher can tell. */
#define QUIESCENT		(connected && FENCE_IS_MINE && CAUGHT_UP && waiting == 0 && !NEWS)

/* Rules 1, 3 and 4 where the dispatcher has nothing left to do. */
inline check_all_is_there()
{
	assert((committed & ~(streams | KEPT | told_missing)) == 0);
#ifdef POISON
	assert((aside & ~BIT(POISON)) == 0);
#endif
	assert((streams & ~committed) == 0);
	k = 0;
	for (i : 1 .. windows) {
		assert((k & w_rows[i]) == 0);		/* in one window only */
		k = k | w_rows[i]
	}
	assert(k == committed);
	k = 0; i = 0
}

/* Without expiry it makes no difference whether the fence is taken along. */
#if ROTATIONS
#define LEAVES_FENCE	(my_fence.window != LAST)
#else
#define LEAVES_FENCE	(my_fence.window != LAST && rows == 0)
#endif

/* Rows that are not in a batch yet, or of whose batch there is no verdict yet. */
#define FROM(spot)		(rows & ~(BIT(spot) - 1))
#define LOWEST(set)		((set) & -(set))

/* What counts as published is in Redis, or is kept in another place: outbox_wait() says so. */
inline check_published()
{
	if
	:: losses == LOSSES && flushes == FLUSHES ->
		last = streams | waiting | KEPT;
		/* What was returned is in another window, which outlives the tombstone. */
		for (i : 1 .. returns) {
			last = last | r_ids[i]
		}
		for (i : 1 .. sent) {
			assert((w_rows[i] & ~last) == 0)
		}
		last = 0
	:: else
	fi
}

/* position_advance(): all windows are sent of which nothing is left. */
inline position_advance()
{
	k = LAST;
	for (i : 1 .. SPOTS) {
		if
		:: HAS(undone, i) && base + OFFSET(i) <= k -> k = base + OFFSET(i) - 1
		:: else
		fi
	}
	if
	:: k > sent ->
		sent = k;
		check_published();
		resume_after = 0;
		published = (published > sent -> published : sent);
#ifdef POISON
		/* After each connect the window before is gone through once more. */
		if
#ifdef ANY_WINDOW_CLEARS
		:: true -> clear_suspects()
#else
		:: suspect_window <= sent -> clear_suspects()
		:: else -> tried_window = 0; tried = 0
#endif
		fi
#endif
	:: else
	fi;
	undone = 0; i = 0; k = 0
}

/* run_append(): window `number`. */
inline run_append(number)
{
	places(last, found_rows, found_returns);
	for (i : 1 .. PLACES) {
		if
		:: HAS(last, i) -> rows = rows | BIT(SPOT(number - base, i))
		:: else
		fi
	}
	run_n++;
	found_rows = 0; found_returns = 0; last = 0; i = 0
}

/* backlog_extend_run(): the next windows that are open, at the end of the run. */
inline backlog_extend_run()
{
	k = (run_n + SERIES < RUN -> LAST + SERIES : base + RUN - 1);
	k = (opened < k -> opened : k);
	for (n : base + run_n .. k) {
		collect(w_xmax[n - 1], w_xip[n - 1], w_xmax[n], w_xip[n]);
		/* Rule 3: a window never changes, but for what has expired. */
		for (i : 1 .. M) {
			assert(HAS(found_rows, i) == (HAS(w_rows[n], i) && ROW_IS_THERE(i)))
		}
		for (i : 1 .. returns) {
			assert(HAS(found_returns, i) == (HAS(w_returns[n], i) && RETURN_IS_THERE(i)))
		}
#ifndef ROWS_NOT_COUNTED
		if
		:: found_rows != w_rows[n] || found_returns != w_returns[n] -> loss_note(n)
		:: else
		fi;
#endif
		run_append(n)
	}
	n = 0; k = 0
}

/* fences_move(): the whole window is dealt with. */
inline fences_move(number)
{
	maybe_save();
	fence.window = number;
	fence.last = END;
	my_fence.window = number;
	my_fence.last = END
}

#if ROTATIONS
/* ------------------------------------------------------------------------
 * Rotation and expiry: rotation.c, cleanup_round.c, expiry.c
 * ------------------------------------------------------------------------ */

/* rotation_run(): the newest window is repeated in the new segment. */
inline rotation_run()
{
	seg_state[current] = SEALED;
	current++;
	seg_first[current] = windows;
	w_published[windows] = (published > w_published[windows] -> published : w_published[windows]);
	flush();
	i = 0
}

/* ConditionalLockRelationOid(ShareLock) */
#define WRITES(id, n)	(tx_state[id] == OPEN && m_seg[id] == n)
#if M >= 3
#define NO_WRITER(n)	(!WRITES(1, n) && !WRITES(2, n) && !WRITES(3, n))
#else
#define NO_WRITER(n)	(!WRITES(1, n) && !WRITES(2, n))
#endif

/* position_has_published() */
#ifdef PENDING_EXPIRES
#define HAS_PUBLISHED(tx)	true
#else
#define HAS_PUBLISHED(tx)	(published == opened -> SEES(looked_xmax, looked_xip, tx) : \
								SEES(w_xmax[published], w_xip[published], tx))
#endif

/* A predecessor that noted it may have died before it wrote down how far it was. */
#ifdef NO_SECOND_PROOF
#define IS_PROVED(n)	true
#else
#define IS_PROVED(n)	HAS_PUBLISHED(seg_tx[n])
#endif

/* nothing_is_lost() */
#ifdef EMPTIED_DURING_REWIND
#define NOTHING_IS_LOST	connected
#else
#define NOTHING_IS_LOST	(connected && sent >= published)
#endif

/* The fence must not stay at a window that goes, nor at one whose rows go. */
#ifdef FENCE_LEFT_BEHIND
#define IS_LEFT_BEHIND	false
#else
#define IS_LEFT_BEHIND	(my_fence.window < sent || (my_fence.window == sent && my_fence.last != END))
#endif

/*
 * expiry_retire(). Rule 6: if Redis is as we believe, what goes is there, or it is kept
 * in another place.
 */
inline expiry_retire(n)
{
	if
	:: FENCE_IS_MINE ->
		for (i : 1 .. M) {
			assert(!(HAS(committed, i) && (m_seg[i] == n || (returned_tx[i] != 0 && r_seg[returned_tx[i]] == n))) ||
				HAS((streams | waiting | KEPT | told_missing), i) ||
				(returned_tx[i] != 0 && r_seg[returned_tx[i]] != n && IS_LIVE(r_seg[returned_tx[i]])))
		}
	:: else
	fi;
	seg_state[n] = RETIRED;
	i = 0
}

/* tombstones_forget_segment() */
inline forget_tombstones(n)
{
	for (k : 1 .. M) {
		if
		:: returned_tx[k] != 0 && !HAS(waiting, k) && t_seg[k] == n -> returned_tx[k] = 0
		:: else
		fi
	}
	k = 0
}

/* advance(). The replay window may be over at any time. */
#ifdef TOMBSTONES_GO_FIRST
#define BEFORE_RETIRED	PUBLISHED
#else
#define BEFORE_RETIRED	RETIRED
#endif

#define STEPS(n, then) \
	:: d_step { seg_state[n] == SEALED && NO_WRITER(n) ->		/* make_quiet() */ \
		seg_state[n] = QUIET; \
		seg_tx[n] = next_xid; \
		next_xid++; \
		flush(); i = 0 }; then \
	:: d_step { seg_state[n] == QUIET && HAS_PUBLISHED(seg_tx[n]) ->	/* note_published() */ \
		seg_state[n] = PUBLISHED; \
		if \
		:: BEFORE_RETIRED == PUBLISHED -> forget_tombstones(n) \
		:: else \
		fi; \
		flush(); i = 0 }; then \
	:: d_step { seg_state[n] == PUBLISHED && IS_PROVED(n) && NOTHING_IS_LOST && !IS_LEFT_BEHIND -> \
		expiry_retire(n); \
		flush(); i = 0 }; then \
	:: d_step { seg_state[n] == RETIRED ->						/* emptying_run() */ \
		forget_tombstones(n); \
		seg_state[n] = EMPTY; \
		flush(); i = 0 }; then

/* cleanup_round_run() */
#define ROTATE(then) \
	:: d_step { current < ROTATIONS -> rotation_run() }; then
#define LACKS_PROOF(n)	((seg_state[n] == QUIET || seg_state[n] == PUBLISHED) && !HAS_PUBLISHED(seg_tx[n]))
#if ROTATIONS == 1
#define CLEANUP(then)	ROTATE(then) STEPS(0, then)
#define TIME_IS_OVER	(seg_state[0] == PUBLISHED)
#define AWAITS_LOOK		LACKS_PROOF(0)
#else
#define CLEANUP(then)	ROTATE(then) STEPS(0, then) STEPS(1, then)
#define TIME_IS_OVER	(seg_state[0] == PUBLISHED || seg_state[1] == PUBLISHED)
#define AWAITS_LOOK		(LACKS_PROOF(0) || LACKS_PROOF(1))
#endif

/* run_round(), fences_settle(): before anything expires. */
#define MUST_SETTLE_FENCE	(TIME_IS_OVER && NOTHING_IS_LOST && IS_LEFT_BEHIND)
#endif

active proctype dispatcher()
{
	bool opened_one;

	d_step {
		w_xmax[1] = 1;
		w_published[1] = 1
	}

start:
	{
		atomic { !killed -> d_step { dispatcher_setup_load() } };

look:	/* look_for_messages() */
		if
		:: d_step { MAY_RETURN && RETURN_IS_DUE -> due_messages_return() }
		:: else
		fi;

		/* window_opening_next(): the snapshot, and what it shows */
		if
		:: d_step {
			take_snapshot();
			collect(looked_xmax, looked_xip, now_xmax, now_xip);
			i = 0;
			opened_one = found_rows != 0 || found_returns != 0;
			if
			:: !opened_one ->
				looked_xmax = now_xmax;
				looked_xip = now_xip;
				now_xmax = 0; now_xip = 0
			:: else
			fi }
		:: !connected -> skip		/* by the clock only, while Redis is away */
		fi;
		if
		:: d_step { opened_one ->		/* insert {number, uuid, S}; commit */
			append_window(now_xmax, now_xip, false);
#ifdef WINDOW_NOT_DURABLE
			wal[wal_n] = WAL_WINDOW;
			wal_n++;
#else
			flush();
#endif
			now_xmax = 0; now_xip = 0; found_rows = 0; found_returns = 0;
			opened_one = false }
		:: atomic { !opened_one && connected -> goto publish }
		:: atomic { !opened_one && !connected -> goto connect }
		fi;
		if
		:: atomic { connected -> goto publish }
		:: atomic { !connected -> goto connect }
#if RUN > 1
		:: atomic { !connected -> goto look }	/* Redis is still away: windows queue up */
#endif
		fi;

connect: /* publish(): redis_state_connect(), redis_session_open() */
		atomic { skip; d_step {		/* redis_connect_to(), read_fence() */
			link_is_up = true;
			COPY(my_fence, fence) } };
		if
		:: d_step { FENCE_IS_MINE ->	/* fences_set_wanted() */
#ifdef CLAIM
			/*
			 * fence_claims_take(): nothing that older links sent matches any more.
			 * The name of the link is one that is nowhere else.
			 */
			fence.claim = 1;
			if
			:: fence.claim == my_fence.claim || (late[0].rows && fence.claim == late[0].builds_on.claim) ->
				fence.claim = 2
			:: else
			fi;
			if
			:: fence.claim == my_fence.claim || (late[0].rows && fence.claim == late[0].builds_on.claim) ->
				fence.claim = 3
			:: else
			fi;
			my_fence.claim = fence.claim;
#endif
			connected = true }
		:: atomic { !FENCE_IS_MINE -> disconnect() }; goto look
		fi;
#ifdef OLD_FENCE_IS_AN_ERROR
		if
		:: atomic { my_fence.window != 0 && IS_TOO_OLD(my_fence) -> disconnect() }; goto look
		:: atomic { !(my_fence.window != 0 && IS_TOO_OLD(my_fence)) -> skip }
		fi;
#endif
		d_step { resume_position() };

publish:
#if ROTATIONS
		/* housekeeping_run(): cleanup_round_run(), by the clock */
		if
		CLEANUP(skip)
		:: atomic { MUST_SETTLE_FENCE && FENCE_IS_MINE -> fences_move(sent) }
		:: atomic { MUST_SETTLE_FENCE && !FENCE_IS_MINE -> disconnect() }; goto look
		:: true
		fi;
		/* No window that is to be read is missing. */
		assert(sent >= OLDEST);
#endif
		if
		:: atomic { CAUGHT_UP -> goto caught_up }
		/* publisher_publish_next(): backlog_next_run() */
		:: d_step { !CAUGHT_UP ->
			base = sent + 1;
			backlog_extend_run();
			/* begin_delivery() */
			next = AFTER(0, resume_after);
#ifdef READ_BEFORE_IS_FRESH
			if
			:: touched < base -> fresh = 1
			:: touched > LAST -> fresh = RUN_END + 1
			:: else -> fresh = AFTER(touched - base, touched_upto)
			fi;
#endif
#ifdef POISON
			defer_culprit()
#endif
			}
		fi;

		do
		/* send_page() */
		:: due < BATCHES_ALLOWED && MORE ->
			d_step { page_make() };
			if
			:: made.rows == 0
			:: d_step { made.rows != 0 && link_is_up -> send_page() }
			:: atomic { made.rows != 0 && !link_is_up ->
#ifdef POISON
				suspects_note_strike();
#endif
				clear_batch(made); disconnect() }; goto look
			fi

		/* provide_windows(): all that there is to send is under way */
#if SERIES < RUN
		:: due > 0 && !MORE && run_n < RUN && opened > LAST -> d_step { backlog_extend_run() }
#endif
#if OVERLAP
		/* open_meanwhile() */
		:: due > 0 && !MORE && NEWS && run_n < RUN && opened == LAST ->
			d_step {
				take_snapshot();
				collect(looked_xmax, looked_xip, now_xmax, now_xip);
				i = 0 };
			d_step {
				append_window(now_xmax, now_xip, false);
				flush();
				now_xmax = 0; now_xip = 0;
				run_append(opened) }
#endif

		/* is_other_work_due(): the rest of the run another time */
		:: atomic { turns > 0 && due == 0 && MORE ->
			turns--;
			d_step { undone = FROM(next); position_advance() };
#ifndef TURN_NOT_NOTED
			resume_after = (next > 1 && base + OFFSET(next - 1) == sent + 1 -> PLACE(next - 1) : 0);
#endif
			forget_run() }; goto look

		/* delivery_follow_verdicts(), when all that may be under way is: pages_allowed() says how many */
		:: due > 0 ->
			if
			:: d_step { link_is_up && answer[0] == ADDED ->
				due--;
				shift_flying();
				for (i : 1 .. IN_FLIGHT - 1) {
					answer[i - 1] = answer[i]
				}
				answer[IN_FLIGHT - 1] = NO_ANSWER;
				in_flight--;
				i = 0;
				undone = FROM(next);
#ifndef ADVANCED_BEFORE_VERDICT
				if
				:: in_flight > 0 -> undone = rows & ~(LOWEST(flying[0].rows) - 1)
				:: else
				fi;
#endif
				position_advance() }
			:: d_step { link_is_up && answer[0] > REFUSED && IS_DRAINED ->
				defer_refused() }
			:: atomic { !link_is_up || answer[0] == MOVED || (answer[0] > REFUSED && RUNS_BEHIND_REFUSED) ->
#ifdef POISON
				if
				:: !link_is_up -> suspects_note_strike()
				:: else
				fi;
#endif
				disconnect() }; goto look
			fi

		:: !MORE && due == 0 -> break
		od;

		/* Where the window is empty; else fences_take_along(), which may lag */
		if
		:: my_fence.window == LAST || rows != 0
		:: atomic { LEAVES_FENCE && FENCE_IS_MINE -> fences_move(LAST) }
		:: atomic { LEAVES_FENCE && !FENCE_IS_MINE -> disconnect() }; goto look
		fi;

		atomic { skip;
			d_step {
#ifdef FENCE_PASSES_BEFORE_DIVERSION_COMMITS
				defer_at_last();
#endif
				undone = 0;
				position_advance();
				forget_run();
				if
				:: CAUGHT_UP && blocked == BLOCKED_PROBING ->
					/* due_messages_end_probes() */
					blocked = (waiting != 0 -> BLOCKED_DRAINING : UNBLOCKED)
				:: else
				fi } };
		goto publish;

caught_up:
		/* closing_window_when_idle() */
		if
		:: d_step { closes > 0 && w_published[windows] < published ->
			closes--;
			append_window(looked_xmax, looked_xip, true);
			sent = windows;
			published = windows;
#ifdef WINDOW_HAS_NO_XID
			/* The commit of a transaction without an id is not flushed either. */
			wal[wal_n] = WAL_WINDOW;
			wal_n++ }
#else
			flush() };
			if
			:: atomic { FENCE_IS_MINE -> fences_move(windows) }
			:: atomic { !FENCE_IS_MINE -> disconnect() }; goto look
			fi
#endif
		:: true
		fi;

		/* wait_for_work() */
		d_step {
			if
			:: QUIESCENT -> check_all_is_there()
			:: else
			fi };
		if
		:: NEWS -> goto look
		:: RETURN_IS_DUE -> goto look
		:: atomic { !FENCE_IS_MINE -> disconnect() }; goto look	/* redis_session_renew() */
#if ROTATIONS
		CLEANUP(goto publish)
		:: atomic { MUST_SETTLE_FENCE && FENCE_IS_MINE -> fences_move(sent) }; goto publish
		:: AWAITS_LOOK -> goto look
#endif
		:: timeout -> d_step {
			assert(QUIESCENT);
			check_all_is_there() }
		fi
	} unless {
		atomic { killed ->
			if
			:: link_is_up -> give_up()
			:: else
			fi;
			d_step { forget_all(); opened_one = false };
#ifdef FENCE_PASSES_BEFORE_DIVERSION_COMMITS
			uncommitted = 0;
#endif
			killed = false };
		goto start
	}
}
