/*
 * takeover.pml
 *		Promela model of two servers that publish to a Redis Cluster, one after the other.
 *
 * Server 0 publishes; server 1 is its standby, which has a prefix of its WAL, and is
 * promoted at any moment. It takes the lease when server 0's has run out; what
 * server 0 has sent by then may arrive at any later time, also after it was frozen.
 *
 * As in lanes.pml each lane has a fence, which names a window; a window is known by
 * an id, which says who opened it: server 0 publishes in one era, server 1 in the next.
 * A window of server 0 that server 1 does not have tells it something only if it knows the
 * era: because the standby has the note of it, or because it has met it in a fence, be it as
 * the era of the window or, where server 0 has claimed the lane and its first batch has
 * not arrived, as that of the claim.
 * Destination E is in lane 1. Destination D is in
 * lane 0, and from some window on in lane 1, if an administrator has changed that.
 * Windows are sent one after the other.
 *
 * Server 0 may come back: server 1 is gone, what it has sent is still under way, its lease
 * has run out, and server 0 opens one more window. It has seen server 1 publish, and notes
 * that, or it was down all the time and learns of it by the fences.
 *
 * D may be paused for a while. What is for it is deferred then, and returned in one more
 * window of server 0; what must come before it in the stream, comes before it. With that,
 * the mapping changes as the number of partitions does: when all is sent.
 */
#ifndef W
#define W			2			/* windows of server 0; server 1 opens one more */
#endif
#ifndef TAKEOVERS
#define TAKEOVERS	0
#endif
#ifndef RETURNS
#define RETURNS		0			/* of server 0; 0 or 1, with takeovers */
#endif
#ifndef REMAPS
#define REMAPS		0			/* changes of the mapping of D */
#endif
#ifndef FAILOVERS
#define FAILOVERS	0			/* of a node to its replica, as it is */
#endif
#ifndef KILLS
#define KILLS		0			/* of the dispatcher of server 0 */
#endif
#ifndef BAR_KILLS
#define BAR_KILLS	0			/* of that of server 1, when it has claimed all fences */
#endif
#ifndef PAUSES
#define PAUSES		0			/* of D; 0 or 1, without takeovers */
#endif

#define L			2
#define D			0
#define E			1
#define NEVER		100
#define LATER		(W + 1)		/* the window of server 1, or of what was deferred */
#define AGAIN		(W + 2)		/* that of server 0 when it has come back */
#define BIT(n)		(1 << (n))
#define HAS(set, n)	(((set) >> (n)) & 1)
#define MESSAGE(dest, w)	BIT(2 * ((w) - 1) + (dest))
#define FOR_D		21845		/* all messages for D */
#define FIRST_OF(set)	((set) & -(set))

/* Redis. A fence is {id of a window, name of a connection}; 0 0 is none. */
typedef Keys { byte window; byte name; short stream; };
Keys master[L];
Keys replica[L];
byte lease;						/* the server that may publish */

/* What server 0 has sent to a lane, and has not arrived. It waits for the answer. */
mtype = { NOTHING, SENT, ADDED, MOVED };
typedef Packet { mtype state; byte window; byte name; short set; byte to; };
#if RETURNS > 0
#define TURNS		3			/* server 0, server 1, server 0 */
#define TURN		(me == 0 && has_returned -> 2 : me)
#define OWN(s)		((s) == 1 -> LATER : AGAIN)
#else
#define TURNS		2
#define TURN		me
#define OWN(s)		LATER
#endif
Packet packet[TURNS * L];		/* those of server 0 first */

#define TURN_OF(p)	((p) / L)
#define BY(p)		(TURN_OF(p) == 1)
#define P			(TURN * L + l)	/* this server's for this lane, in its turn */

/* What a database has: windows 1..n, and on server 1 also its own. */
byte rows[W + 3];				/* destinations that a window has a message for */
byte published_then[W + 3];		/* its column "published" */
typedef Database { byte n; byte own; byte published; byte used; byte border; };
Database db[2];

/* The WAL: what server 0 has written, in that order; the standby has the first `applied` entries. */
mtype = { WINDOW, NOTE, REMAP };
typedef Entry { mtype kind; byte arg; };
#define WAL			(W + L + REMAPS + 1)
Entry wal[WAL];
byte written, applied;
bool promoted;

/* outbox.deferred: messages that have a row there, those that wait, those that were returned, and those that keep lane 0. */
short deferred, waiting, returned, kept;
bool paused;
byte pauses;

byte names;						/* connections so far; none is used twice */
int names_of[TURNS];			/* those of each turn */
byte noted = NEVER;				/* the border that is on disk */
byte remaps, failovers, kills, bar_kills;
byte begun;						/* the last turn in which a message was added */
byte begun_in[L];
bool has_returned;				/* server 0 */
bool was_down;					/* it, while server 1 published */
bool went_back[2];				/* a fence names a window that this database never opened */
byte went_on[2] = NEVER;		/* after which window, if the era of the other one is known to have ended; on disk */
bool finished;

/* Windows in the order in which a server has them. */
#define ORD(s, w)	((w) == OWN(s) -> db[s].n + 1 : (w))
#define LAST(s)		(db[s].n + db[s].own)
#define ID(s, o)	((o) > db[s].n -> OWN(s) : (o))
#define KNOWS(s, w)	((w) == OWN(s) -> db[s].own : (w) <= db[s].n)

#ifdef MAPPING_NOT_KEPT
#define LANE(s, dest, o)	((dest) == E || db[s].border != NEVER)
#else
#define LANE(s, dest, o)	((dest) == E || (o) > db[s].border)
#endif
#if PAUSES > 0
#define RETURNED(s, l)	(LANE(s, D, LATER) == 0 -> ((l) == 0 -> returned : 0) : ((l) == 0 -> returned & kept : returned & ~kept))
#define ROWS(s, l, o)	(ID(s, o) == LATER -> RETURNED(s, l) : MESSAGES(s, l, o) & ~deferred)
#else
#define ROWS(s, l, o)	MESSAGES(s, l, o)
#endif
#define MESSAGES(s, l, o)	((HAS(rows[ID(s, o)], D) && LANE(s, D, o) == (l) -> MESSAGE(D, ID(s, o)) : 0) | (HAS(rows[ID(s, o)], E) && (l) == 1 -> MESSAGE(E, ID(s, o)) : 0))

inline log(what, argument)
{
	assert(written < WAL);
	wal[written].kind = what;
	wal[written].arg = argument;
	written++
}

/* publish.lua */
inline run_script(p)
{
	if
	:: master[l].window != packet[p].window || master[l].name != packet[p].name -> packet[p].state = MOVED
	:: else ->
		/*
		 * Nothing of the server before appears once the next one has begun, unless a node has lost its
		 * claim; in lanes that it does not use, only if it knows that another one has published.
		 */
		assert(TURN_OF(p) >= begun_in[l] || failovers > 0);
		assert(TURN_OF(p) >= begun || failovers > 0 || was_down);
#if PAUSES > 0
		/* Order: nothing comes behind later messages for D. */
		assert((packet[p].set & FOR_D) == 0 || (master[l].stream & FOR_D & ~(2 * FIRST_OF(packet[p].set & FOR_D) - 1)) == 0);
#endif
		/* Rule 4, unless the database went back in time; or that of server 1, which has set fences back then. */
		assert(((master[0].stream | master[1].stream) & packet[p].set) == 0 || went_back[BY(p)] || (TURN_OF(p) == 2 && went_back[1]));
		master[l].stream = master[l].stream | packet[p].set;
		master[l].window = packet[p].to;
		if
		:: TURN_OF(p) > begun -> begun = TURN_OF(p)
		:: else
		fi;
		begun_in[l] = TURN_OF(p);
		packet[p].state = ADDED
	fi
}

proctype cluster(byte l)
{
end:
	do
	:: atomic { !finished && packet[l].state == SENT -> run_script(l) }
	:: atomic { !finished && packet[L + l].state == SENT -> run_script(L + l) }
#if RETURNS > 0
	:: atomic { !finished && packet[2 * L + l].state == SENT -> run_script(2 * L + l) }
#endif
	:: d_step { !finished && failovers < FAILOVERS &&
			(replica[l].window != master[l].window || replica[l].name != master[l].name || replica[l].stream != master[l].stream) ->
		replica[l].window = master[l].window; replica[l].name = master[l].name; replica[l].stream = master[l].stream }
	:: d_step { !finished && failovers < FAILOVERS -> failovers++;
		master[l].window = replica[l].window; master[l].name = replica[l].name; master[l].stream = replica[l].stream }
	:: finished -> break
	od
}

/* Sessions, and the dispatcher that opens windows; the standby. */
proctype clients()
{
end:
	do
	:: atomic { db[0].n < W && !promoted ->
		db[0].n++;
		if
		:: rows[db[0].n] = BIT(D)
		:: rows[db[0].n] = BIT(E)
		:: rows[db[0].n] = BIT(D) | BIT(E)
		fi;
		published_then[db[0].n] = db[0].published;
		log(WINDOW, db[0].n) }
	:: atomic { TAKEOVERS > 0 && !promoted && applied < written ->
		if
		:: wal[applied].kind == WINDOW -> db[1].n++; db[1].published = published_then[db[1].n]
		:: wal[applied].kind == NOTE -> db[1].used = db[1].used | BIT(wal[applied].arg)
		:: wal[applied].kind == REMAP -> db[1].border = wal[applied].arg
		fi;
		applied++ }
	:: atomic { pauses < PAUSES -> pauses++; paused = true }
	:: atomic { paused -> paused = false }
	:: finished -> break
	od
}

/* What is for D waits while it is paused, and behind what waits. What a former lane has lost keeps it. */
inline deferral_try_defer(l)
{
#if PAUSES > 0
	atomic {
		set = ROWS(me, l, next) & FOR_D;
		if
		:: set != 0 && (paused || (waiting & (FIRST_OF(set) - 1)) != 0) ->
			deferred = deferred | set;
			waiting = waiting | set;
			returned = returned & ~set;
#ifndef STREAM_NOT_KEPT
			if
			:: ID(me, next) != LATER && db[me].border != NEVER && next <= db[me].border -> kept = kept | set
			:: else
			fi
#endif
		:: else
		fi;
		set = 0
	}
#else
	skip
#endif
}

/* A fence tells of the server before: its window, or the connection that has claimed it. */
#define WINDOW_TELLS	(seen != 0 && (TURN == 1 -> seen != LATER : seen == LATER))
#define CLAIM_TELLS		HAS(names_of[TURN - 1], seen_name)
#define TAKES_OVER		(me == 1 || has_noted_other)

/*
 * The fence of a lane is read. After that it must be known that the lease is still
 * ours: only then the fence may be set, if it has not changed.
 */
inline read_fence(l)
{
	atomic {
#ifndef LEASE_NOT_CHECKED
		if
		:: lease != me -> goto gone
		:: else
		fi;
#endif
		seen = master[l].window; seen_name = master[l].name;
#ifdef CLAIMS_NAME_NO_ERA
		if
		:: TURN > 0 && WINDOW_TELLS -> met = true
		:: else
		fi
#else
		if
		:: TURN > 0 && (WINDOW_TELLS || CLAIM_TELLS) -> met = true
		:: else
		fi
#endif
	}
}

/* The eras that were met have ended. */
inline era_begin_if_due()
{
#ifndef ERA_NOT_NOTED
	if
	:: met && went_on[me] == NEVER -> went_on[me] = db[me].published
	:: else
	fi;
#endif
	met = false
}

#define IS_AS_READ(l)	(master[l].window == seen && master[l].name == seen_name)

/* Where to go on from a fence that names an unknown window. That is noted when its era ends, or now. */
inline era_went_on_after(l, place)
{
	went_back[me] = true;
	if
	:: went_on[me] == NEVER -> went_on[me] = place
	:: else
	fi;
	at[l] = went_on[me]
}

#define IS_UNKNOWN(w)	((w) != 0 && !KNOWS(me, w))

/* A fence that has the value that was read is claimed; it stays where it is: it names what the streams of the lane have. */
inline claim(l)
{
	if
	:: IS_UNKNOWN(master[l].window) -> era_went_on_after(l, db[me].published)
	:: else -> at[l] = (master[l].window == 0 -> 0 : ORD(me, master[l].window))
	fi;
	master[l].name = name;
	master_known[l] = master[l].window
}

/* Nothing that was sent was for this lane, unless its fence says so. */
inline want_first_use(l)
{
	if
	:: IS_UNKNOWN(master[l].window) -> era_went_on_after(l, sent); at[l] = 0
	:: else -> at[l] = (master[l].window == 0 -> 0 : ORD(me, master[l].window))
	fi;
	master[l].name = name;
	if
	:: at[l] < sent -> at[l] = sent; master[l].window = (sent == 0 -> 0 : ID(me, sent))
	:: else
	fi;
	master_known[l] = master[l].window
}

#define IS_OURS(l)	(master[l].name == name)

/* A message is sent only while the lease is ours by the clock. */
inline traffic_send(l)
{
	if
#ifdef LEASE_NOT_CHECKED
	:: true
#else
	:: atomic { lease == me }
	:: atomic { lease != me } goto connect
#endif
	fi;
	/* From here on the server may be frozen: the packet is under way for any time. */
	atomic {
		packet[P].window = master_known[l]; packet[P].name = name; packet[P].set = ROWS(me, l, next);
		packet[P].to = ID(me, next); packet[P].state = SENT
	}
}

proctype dispatcher(byte me)
{
	byte l, name, sent, next, new, touched, seen, seen_name;
	byte at[L], master_known[L];
	bool met;
	bool has_noted_other;		/* server 0: that server 1 has published */
	short set;
	mtype answer;

	if
	:: me == 0 -> skip
	:: atomic { me == 1 && lease == 0 && TAKEOVERS > 0 ->
		/* The lease of server 0 has run out, and server 1 is promoted: it opens a window. */
		promoted = true; lease = 1;
#ifndef ERA_NOT_NOTED
		/* The note of its era comes before all that server 0 has written in it. */
		if
		:: went_on[1] = db[1].published
		:: applied == 0
		fi;
#endif
		went_back[1] = (db[1].border != db[0].border);	/* a transaction is lost */
		db[1].own = 1; rows[LATER] = BIT(D) | BIT(E) }
	fi;

connect:
	atomic {
		l = 0;
		new = 0;
		if
		:: lease != me -> goto gone
		:: else
		fi;
		names++; name = names;
		assert(names < 31);
		names_of[TURN] = names_of[TURN] | BIT(name)
	}
	/* Here it may be frozen, too: the lease was ours. */
	do
	:: l < L ->
		read_fence(l);
#ifndef MET_NOTED_LAST
		atomic { era_begin_if_due() };
#endif
		if
#ifndef TAKES_OVER_KNOWN_LANES_ONLY
		/* Who takes over claims every fence that there is. */
		:: atomic { ((TAKES_OVER && seen_name != 0) || HAS(db[me].used, l)) && IS_AS_READ(l) -> claim(l); l++ }
		:: atomic { ((TAKES_OVER && seen_name != 0) || HAS(db[me].used, l)) && !IS_AS_READ(l) } goto connect
		:: atomic { !((TAKES_OVER && seen_name != 0) || HAS(db[me].used, l)) -> l++ }
#else
		:: atomic { HAS(db[me].used, l) && IS_AS_READ(l) -> claim(l); l++ }
		:: atomic { HAS(db[me].used, l) && !IS_AS_READ(l) } goto connect
		:: atomic { !HAS(db[me].used, l) -> l++ }
#endif
		fi
	:: else -> break
	od;
#if BAR_KILLS > 0
	if
	:: atomic { TAKES_OVER && bar_kills < BAR_KILLS -> bar_kills++; met = false } goto connect
	:: true
	fi;
#endif
	atomic {
		era_begin_if_due();
		/* The oldest fence of the lanes in use, or what the tables know to be published. */
		l = 0;
		sent = LAST(me);
		do
		:: l < L ->
			if
			:: HAS(db[me].used, l) && at[l] < sent -> sent = at[l]
			:: else
			fi;
			l++
		:: else -> break
		od;
#ifdef STARTS_AT_OLDEST_FENCE
		if
		:: db[me].used == 0 -> sent = db[me].published
		:: else
		fi;
#else
		if
		:: db[me].published < sent -> sent = db[me].published
		:: else
		fi;
#endif
		next = sent + 1
	}

publish:
	do
	:: next <= LAST(me) ->
		/* First use: claimed, noted, and only then anything of the window is sent. */
		l = 0;
		do
		:: l < L && ROWS(me, l, next) != 0 && !HAS(db[me].used, l) ->
			read_fence(l);
#ifndef MET_NOTED_LAST
			atomic { era_begin_if_due() };
#endif
			if
			:: atomic { IS_AS_READ(l) -> want_first_use(l); new = new | BIT(l); l++ }
			:: atomic { !IS_AS_READ(l) } goto connect
			fi
		:: l < L && !(ROWS(me, l, next) != 0 && !HAS(db[me].used, l)) -> l++
		:: l == L -> break
		od;
		l = 0;
		touched = (next > touched -> next : touched);
		do
		:: atomic { l < L && HAS(new, l) ->
			if
			:: me == 0 && !promoted -> log(NOTE, l)
			:: else			/* a stale server writes for itself */
			fi;
			db[me].used = db[me].used | BIT(l); l++ }
		:: atomic { l < L && !HAS(new, l) -> l++ }
		:: atomic { l == L -> new = 0; l = 0; break }
		od;
		do
		:: l < L ->
			if
			:: ROWS(me, l, next) == 0 || at[l] >= next -> l++
			:: !(ROWS(me, l, next) == 0 || at[l] >= next) ->
				deferral_try_defer(l);
				if
				:: ROWS(me, l, next) == 0 -> goto skipped
				:: else
				fi;
				traffic_send(l);
				if
				:: atomic { packet[P].state == ADDED || packet[P].state == MOVED -> answer = packet[P].state; packet[P].state = NOTHING }
				:: finished -> goto gone
				fi;
				if
				:: answer == ADDED -> atomic { at[l] = next; master_known[l] = ID(me, next); l++ }
				:: answer != ADDED -> goto connect
				fi
			fi;
skipped:	skip
		:: else -> break
		od;
		atomic {
			sent = next; next++; l = 0;
			if
			:: db[me].published < sent -> db[me].published = sent
			:: else
			fi
		}
		if
		:: atomic { me == 0 && kills < KILLS -> kills++; db[0].published = published_then[db[0].n]; db[0].border = noted; touched = LAST(0) } goto connect
		:: true
		fi
	/* An administrator's change takes effect behind the last window that may have been sent. */
	:: atomic { me == 0 && remaps < REMAPS && !promoted && (PAUSES == 0 || sent >= touched) -> remaps++;
#ifdef BORDER_AT_SENT
		db[0].border = sent;
#else
		db[0].border = touched;
#endif
#ifndef MAPPING_NOT_NOTED
		noted = db[0].border;
		log(REMAP, noted)
#endif
		}
	:: next > LAST(me) -> break
	od;

	/* Idle: the fences of all lanes are compared, as long as something may fail. */
	l = 0;
	do
	:: l < L ->
		if
		:: atomic { HAS(db[me].used, l) && (!IS_OURS(l) || master[l].window != master_known[l]) } goto connect
		:: atomic { !HAS(db[me].used, l) || (IS_OURS(l) && master[l].window == master_known[l]) -> l++ }
		fi
	:: else -> break
	od;
	if
#if PAUSES > 0
	:: atomic { waiting != 0 && !paused && db[0].n == W && next > LAST(0) -> assert(!db[0].own); db[0].own = true; returned = waiting; waiting = 0 } goto publish
#endif
	:: next <= LAST(me) -> goto publish
	:: atomic { next > LAST(me) && waiting == 0 && pauses == PAUSES && !paused && (RETURNS > 0 -> has_returned : me == 1 || (TAKEOVERS == 0 && db[0].n == W && remaps == REMAPS)) && failovers == FAILOVERS } goto last
	:: me == 0 && !has_returned && (TAKEOVERS == 1 || failovers < FAILOVERS || remaps < REMAPS || db[0].n < W) && lease == 0 -> goto publish
	:: lease != me -> goto gone
	fi;

last:
	atomic {
		/* The last failover may have come after the comparison. */
		l = 0;
		do
		:: l < L ->
			if
			:: HAS(db[me].used, l) && (!IS_OURS(l) || master[l].window != master_known[l]) -> goto connect
			:: else
			fi;
			l++
		:: else -> break
		od;
		finished = true;
		/* Rule 1: all that this database has is in Redis. */
		next = 1;
		do
		:: next <= LAST(me) ->
			l = 0;
			do
			:: l < L ->
				assert((ROWS(me, l, next) & ~(master[0].stream | master[1].stream)) == 0);
				l++
			:: else -> break
			od;
			next++
		:: else -> break
		od
	}

gone:
#if RETURNS > 0
	if
	:: atomic { me == 0 && !has_returned && lease == 1 ->
		/* Server 1 is gone, and its lease has run out. Server 0 was there, or is started again. */
		has_returned = true; lease = 0; met = false;
		if
#ifdef OTHER_NOT_NOTED
		:: true
#else
		:: has_noted_other = true	/* note_other_publisher() */
#endif
		:: was_down = true;
			db[0].published = published_then[db[0].n]; db[0].border = noted; touched = LAST(0)
		fi;
		db[0].own = 1; rows[AGAIN] = BIT(D) | BIT(E) } goto connect
	:: me == 1 || finished || has_returned
	fi
#endif
	skip
}

init
{
	atomic {
		packet[0].state = NOTHING; packet[1].state = NOTHING; packet[2].state = NOTHING; packet[3].state = NOTHING;
#if RETURNS > 0
		packet[4].state = NOTHING; packet[5].state = NOTHING;
#endif
		db[0].border = NEVER; db[1].border = NEVER;
		run cluster(0);
		run cluster(1);
		run clients();
		run dispatcher(0);
		if
		:: TAKEOVERS > 0 -> run dispatcher(1)
		:: else
		fi
	}
}
