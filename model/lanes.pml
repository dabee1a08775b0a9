/*
 * lanes.pml
 *		Promela model of dispatch to a Redis Cluster: one fence for each hash slot.
 *
 * A script reaches the keys of one hash slot, so the messages for the streams of
 * a slot are a lane, with a fence of its own: lane l is sent, compared and lost
 * independently of the others. What dispatch.pml has of windows, runs and ids is
 * left out: windows 1..W are there from the beginning, each has at most one message
 * for a lane, and a batch has what one window has for one lane. So a fence is
 * {window, name of the connection}, and all messages for a lane up to that window
 * are dealt with.
 *
 * Up to IN_FLIGHT windows are under way, each in as many batches as it has lanes.
 * A node has a replica that lags behind by any number of steps. A batch without
 * an answer when the links are closed is run at any later time, or never.
 *
 * The destination of lane 0 may refuse: its messages are deferred, and return in
 * windows after W, which are opened when all others are sent, unless something may
 * have been left out for it.
 *
 * The node of a lane may be away for a while, or not accept writes. Lanes that cannot be
 * claimed for that are blocked: what is for them is left out until the next connection,
 * and no window from the first one on counts as published of which something was left out.
 */
#ifndef W
#define W			2			/* windows */
#endif
#ifndef L
#define L			2			/* lanes */
#endif
#ifndef IN_FLIGHT
#define IN_FLIGHT	2			/* windows under way */
#endif
#ifndef FAILOVERS
#define FAILOVERS	0			/* to the replica, as it is */
#endif
#ifndef FLUSHES
#define FLUSHES		0			/* of a node and its replica */
#endif
#ifndef KILLS
#define KILLS		0			/* of the dispatcher */
#endif
#ifndef CUTS
#define CUTS		0			/* of a link */
#endif
#ifndef LATES
#define LATES		0			/* batches of links given up that arrive yet */
#endif
#ifndef BREAKS
#define BREAKS		0			/* times that the destination of lane 0 breaks */
#endif
#ifndef BLOCKS
#define BLOCKS		0			/* times that the node of a lane is away */
#endif
#ifndef EXPIRES
#define EXPIRES		0			/* times that the log is emptied */
#endif

#define BIT(n)		(1 << (n))
#define HAS(set, n)	(((set) >> (n)) & 1)
#define PROBES		1			/* returns to a destination that may still refuse */
#define RETURNS		(BREAKS * (PROBES + 1) + 1)	/* asserted to suffice */
#define NEWEST		(W + returns)

/* A node's keys of a lane. Messages are named by the window that they were committed in. */
typedef Keys { byte window; byte name; byte stream; };
Keys master[L];
Keys replica[L];

/* A run of the script: what it builds on, what it adds, the window that it brings the fence to. */
mtype = { NOTHING, SENT, ADDED, REFUSED, MOVED };
typedef Batch { mtype state; byte window; byte name; byte set; byte to; };
typedef Link { Batch b[IN_FLIGHT]; };
Link link[L];					/* of this connection, the oldest batch first */
Batch late[L];					/* of a link that was given up */

/* PostgreSQL: all of it is on disk. */
byte rows[W + RETURNS + 1];				/* lanes that a window has a message for (bit l) */
byte used;						/* outbox.lane */
byte deferred;					/* messages of lane 0 that have a row in outbox.deferred, */
byte waiting;					/* and those that were not returned since */
byte returns;					/* windows of messages that were returned */
byte returned[RETURNS + 1];		/* in which of them a message was returned last */
byte expired;					/* no window up to this one is kept */
byte published;					/* all messages up to this window are known to be in Redis, or deferred */

/* The dispatcher. What it keeps in memory is gone when it is killed. */
byte name;						/* of the connection; none is used twice */
byte at[L];						/* the window that the fence of the lane names when all is answered */
byte sent;						/* all messages up to this window are in Redis, or deferred, or were left out */
byte blocked;					/* lanes that could not be claimed, whether they are in use or not */
byte was;						/* what this process had sent before it connected */
byte left_of[L];				/* the first window of which something was left out for a lane; 0 = none */
bool fell_behind;				/* a fence was not in the log any more */
byte left;						/* the first window that is not published of which something was left out; 0 = none */
byte next;						/* window that is sent next */
byte first[IN_FLIGHT];			/* windows under way, the oldest first */
byte flight;

bool is_broken;
byte away;						/* lanes whose node is */
byte failovers, flushes, kills, cuts, breaks, blocks, expiries, probes, lates;
bool finished;

/* Ghosts: what a lane's node has lost, and what was told of that. */
byte lost[L];
bool hurt[L];
bool told[L];
bool lost_since_compared[L];

#ifdef FENCE_NOT_CLAIMED
#define MY_NAME		0
#else
#define MY_NAME		name
#endif
#define IS_OURS(l)	(master[l].window == at[l] && master[l].name == MY_NAME)

#ifdef EXPIRES_WHILE_BLOCKED
#define MAY_EXPIRE	true
#else
#define MAY_EXPIRE	(blocked == 0)
#endif

#ifdef RETURNS_TO_BLOCKED_LANE
#define MAY_RETURN	true
#else
#define MAY_RETURN	(!HAS(blocked, 0))
#endif

#define BEHIND_ALL	255
#define IS_AWAY(l)	(BLOCKS > 0 && HAS(away, l))

#ifdef LANES_DO_NOT_SKIP
#define SENDS(l)	true
#else
#define SENDS(l)	(at[l] < next)
#endif

/* The messages of a window for a lane. */
#define MESSAGES(w, l)	((w) > W -> ((l) == 0 -> returned[(w) - W] : 0) : (HAS(rows[w], l) -> BIT(w) : 0))

/* Those that are sent from there, and not as rows that were returned. */
#define TO_SEND(w, l)	((l) == 0 && (w) <= W -> MESSAGES(w, l) & ~deferred : MESSAGES(w, l))

/* publish.lua */
inline run_script(B, l)
{
	if
#ifndef NO_COMPARE
	:: master[l].window != B.window || master[l].name != B.name -> B.state = MOVED
#endif
	:: else ->
		if
		:: l == 0 && is_broken && B.set != 0 -> B.state = REFUSED
		:: else ->
			assert((master[l].stream & B.set) == 0);	/* rule 4: nothing is added twice, */
			assert(B.set == 0 || (B.set & ~(B.set - 1)) > master[l].stream);	/* and all in order */
			master[l].stream = master[l].stream | B.set;
			master[l].window = B.to;
			B.state = ADDED
		fi
	fi
}

inline lose(l)
{
	hurt[l] = true;
	lost[l] = lost[l] | (master[l].stream & ~replica[l].stream);
	lost_since_compared[l] = true;
	master[l].window = replica[l].window;
	master[l].name = replica[l].name;
	master[l].stream = replica[l].stream
}

proctype cluster(byte l)
{
end:
	do
	:: atomic { !finished && !IS_AWAY(l) && link[l].b[0].state == SENT -> run_script(link[l].b[0], l) }
	:: atomic { !finished && !IS_AWAY(l) && link[l].b[0].state != SENT && link[l].b[0].state != NOTHING && link[l].b[1].state == SENT -> run_script(link[l].b[1], l) }
	:: atomic { !finished && !IS_AWAY(l) && late[l].state == SENT -> run_script(late[l], l); late[l].state = NOTHING }
	:: d_step { !finished && (FAILOVERS > 0) && failovers < FAILOVERS &&
			(replica[l].window != master[l].window || replica[l].name != master[l].name || replica[l].stream != master[l].stream) ->
		replica[l].window = master[l].window; replica[l].name = master[l].name; replica[l].stream = master[l].stream }
	:: d_step { !finished && failovers < FAILOVERS -> failovers++; lose(l) }
	:: d_step { !finished && flushes < FLUSHES -> flushes++;
		replica[l].window = 0; replica[l].name = 0; replica[l].stream = 0; lose(l) }
	:: d_step { !finished && (BLOCKS > 0) && blocks < BLOCKS && !HAS(away, l) -> blocks++; away = away | BIT(l) }
	:: d_step { !finished && (BLOCKS > 0) && HAS(away, l) -> away = away & ~BIT(l) }
	:: d_step { !finished && breaks < BREAKS && l == 0 && !is_broken -> breaks++; is_broken = true }
	:: d_step { !finished && l == 0 && is_broken -> is_broken = false }
	:: finished -> break
	od
}

/* All links are closed. Of what has no answer one batch of each lane may still arrive. */
inline traffic_close()
{
	l = 0;
	do
	:: l < L ->
		if
		:: lates < LATES && late[l].state == NOTHING && link[l].b[0].state == SENT ->
			lates++;
			late[l].window = link[l].b[0].window; late[l].name = link[l].b[0].name;
			late[l].set = link[l].b[0].set; late[l].to = link[l].b[0].to; late[l].state = SENT
		:: true						/* the first one never does, nor do those behind it, or none is left */
		fi;
		link[l].b[0].state = NOTHING;
		link[l].b[1].state = NOTHING;
		l++
	:: else -> break
	od;
	flight = 0;
	blocked = 0;
	left = 0;
	l = 0
}

/* The node of a lane is away: it is blocked. */
inline lanes_block(l)
{
	blocked = blocked | BIT(l);
	at[l] = BEHIND_ALL
}

/* A message of a window is left out for a lane. Redis had it before if that is published. */
inline leave_out(w, l)
{
	if
	:: (w) > published ->
		left = (left == 0 || (w) < left -> (w) : left);
		left_of[l] = (left_of[l] == 0 || (w) < left_of[l] -> (w) : left_of[l])
	:: else
	fi
}

/* A window has its answers. */
inline position_advance(w)
{
	sent = w;
	if
#ifdef PUBLISHED_PASSES_LEFT_OUT
	:: sent > published -> published = sent
#else
	:: sent > published && left == 0 -> published = sent
	:: sent > published && left != 0 && left - 1 > published -> published = (sent < left - 1 -> sent : left - 1)
#endif
	:: else
	fi
}

/* The fence of a lane is read and claimed, in one script. What is told may be missing. */
inline claim(l)
{
	at[l] = master[l].window;
	if
	:: at[l] < expired ->
		told[l] = true;
		fell_behind = true;
		at[l] = expired
	:: else
	fi;
	master[l].window = at[l];
#ifndef FENCE_NOT_CLAIMED
	master[l].name = name;
#endif
	lost_since_compared[l] = false
}

/* First use of a lane: nothing of what was sent was for it. */
inline want_first_use(l)
{
	at[l] = (master[l].window > sent -> master[l].window : sent);
	master[l].window = at[l];
#ifndef FENCE_NOT_CLAIMED
	master[l].name = name;
#endif
	lost_since_compared[l] = false
}

/* What waits for its destination. It is committed before anything behind it is sent. */
inline defer_row(w, set)
{
	deferred = deferred | (set);
	waiting = waiting | (set);
	if
	:: (w) > W -> returned[(w) - W] = returned[(w) - W] & ~(set)
	:: else
	fi
}

/* A batch of window `next` for a lane goes out behind those that are under way. */
inline traffic_send(l)
{
	if
	:: link[l].b[0].state == NOTHING -> slot = 0
	:: else -> slot = 1
	fi;
	assert(link[l].b[slot].state == NOTHING);
	link[l].b[slot].window = at[l];
	link[l].b[slot].name = MY_NAME;
	link[l].b[slot].set = TO_SEND(next, l);
	link[l].b[slot].to = next;
	link[l].b[slot].state = SENT;
	at[l] = next
}

/* The oldest batch of a lane has its answer. */
inline traffic_receive_verdict(l)
{
	answer = link[l].b[0].state;
	base = link[l].b[0].window;
	set_of = link[l].b[0].set;
	link[l].b[0].state = link[l].b[1].state;
	link[l].b[0].window = link[l].b[1].window;
	link[l].b[0].name = link[l].b[1].name;
	link[l].b[0].set = link[l].b[1].set;
	link[l].b[0].to = link[l].b[1].to;
	link[l].b[1].state = NOTHING
}

/* What counts as sent is in Redis as far as that has lost nothing, or is deferred; in lanes that are blocked, what counts as published. */
inline check_sent()
{
	l = 0;
	do
	:: l < L ->
		x = 1;
		do
		:: x <= (HAS(blocked, l) || published > sent -> published : sent) ->
			assert((MESSAGES(x, l) & ~(master[l].stream | lost[l] | (l == 0 -> deferred : 0))) == 0);
			x++
		:: else -> break
		od;
		l++
	:: else -> break
	od;
	l = 0; x = 0
}

/* What goes is in Redis, unless that has lost it since its fence was compared, or is deferred. */
inline check_expired()
{
	l = 0;
	do
	:: l < L ->
		x = expired + 1;
		do
		:: x <= sent ->
			assert(((lost_since_compared[l] -> 0 : MESSAGES(x, l)) & ~(master[l].stream | (l == 0 -> deferred : 0))) == 0);
			x++
		:: else -> break
		od;
		l++
	:: else -> break
	od
}

proctype dispatcher()
{
	byte l, x, new, slot, base, set_of, refused_base, refused_set;
	mtype answer;
	byte under[IN_FLIGHT];			/* lanes of the windows under way that have not answered */

connect:
	atomic {
		traffic_close();
		was = sent;
		fell_behind = false;
		name++;
		l = 0
	}
	/* Every lane that was ever used is claimed before anything is sent. */
	do
	:: l < L ->
		if
		:: atomic { HAS(used, l) && !IS_AWAY(l) -> claim(l); l++ }
		:: atomic { HAS(used, l) && IS_AWAY(l) -> lanes_block(l); l++ }
		:: atomic { !HAS(used, l) && left_of[l] != 0 && IS_AWAY(l) -> lanes_block(l); l++ }
		:: atomic { !HAS(used, l) && !(left_of[l] != 0 && IS_AWAY(l)) -> at[l] = expired; l++ }
		fi
	:: else -> break
	od;
	atomic {
		/* resume_position(): the oldest fence. Each lane skips what its own one covers. */
		sent = NEWEST; l = 0;
		do
		:: l < L ->
			if
			:: HAS(used, l) && at[l] < sent -> sent = at[l]
			:: else
			fi;
			l++
		:: else -> break
		od;
		if
		:: used == 0 -> sent = expired
		:: else
		fi;
#ifndef RESUMES_AT_OLDEST_FENCE
		/* What this process has sent matters, but for what it left out for lanes that are not blocked. */
		l = 0;
		do
		:: l < L ->
			if
#ifndef LEFT_OUT_IS_FORGOTTEN
			:: left_of[l] != 0 && !HAS(blocked, l) ->
				was = (left_of[l] - 1 < was -> left_of[l] - 1 : was);
				left_of[l] = 0
#endif
			:: else
			fi;
			l++
		:: else -> break
		od;
		if
		:: fell_behind && was > published -> was = published; left_of[0] = 0; left_of[1] = 0
		:: else
		fi;
		if
		:: BLOCKS > 0 && was < sent -> sent = was
		:: else
		fi;
		l = 0;
		do
		:: l < L ->
			if
			:: left_of[l] != 0 && (left == 0 || left_of[l] < left) -> left = left_of[l]
			:: else
			fi;
			l++
		:: else -> break
		od;
		if
		:: BLOCKS > 0 -> position_advance(sent)
		:: else
		fi;
#endif
#ifdef STARTS_AT_NEWEST_FENCE
		l = 0;
		do
		:: l < L ->
			if
			:: HAS(used, l) && at[l] > sent -> sent = at[l]
			:: else
			fi;
			l++
		:: else -> break
		od;
#endif
		next = sent + 1; l = 0; new = 0; under[0] = 0; under[1] = 0; flight = 0
	}

publish:
	do
	/* Another window is sent: a batch for each lane that has messages in it. */
	:: next <= NEWEST && flight < IN_FLIGHT ->
#ifndef LANE_NOTED_WHEN_SENT
		/*
		 * Lanes that are used for the first time are claimed, then noted on disk,
		 * and only then is anything of this window sent, to whichever lane.
		 */
		do
		:: atomic { l < L && MESSAGES(next, l) != 0 && !HAS(used, l) && !HAS(blocked, l) && !IS_AWAY(l) -> want_first_use(l); new = new | BIT(l); l++ }
		:: atomic { l < L && MESSAGES(next, l) != 0 && !HAS(used, l) && !HAS(blocked, l) && IS_AWAY(l) -> lanes_block(l); l++ }
		:: l < L && !(MESSAGES(next, l) != 0 && !HAS(used, l) && !HAS(blocked, l)) -> l++
		:: l == L -> break
		od;
		if
		:: atomic { new != 0 && kills < KILLS -> kills++ } goto killed
		:: true
		fi;
#ifdef LANE_NOT_NOTED
		atomic { new = 0; l = 0 }
#else
		atomic { used = used | new; new = 0; l = 0 }
#endif
#endif
		do
		:: l < L ->
#ifdef LANE_NOTED_WHEN_SENT
			if
			:: MESSAGES(next, l) != 0 && !HAS(used, l) ->
				atomic { want_first_use(l) }
				if
				:: atomic { kills < KILLS -> kills++ } goto killed
				:: true
				fi;
				atomic { used = used | BIT(l) }
			:: else
			fi;
#endif
			atomic {
				if
#ifdef LANES_DO_NOT_SKIP
				:: false
#else
				:: at[l] >= next && !HAS(blocked, l)	/* it has this window */
#endif
				:: HAS(blocked, l) && TO_SEND(next, l) != 0 -> leave_out(next, l)
				:: HAS(blocked, l) && TO_SEND(next, l) == 0
				:: SENDS(l) && TO_SEND(next, l) == 0
				:: SENDS(l) && TO_SEND(next, l) != 0 && l == 0 && waiting != 0 -> x = TO_SEND(next, l); defer_row(next, x); x = 0
				:: SENDS(l) && TO_SEND(next, l) != 0 && !(l == 0 && waiting != 0) -> traffic_send(l); under[flight] = under[flight] | BIT(l)
				fi;
				l++
			}
		:: else -> break
		od;
		atomic { first[flight] = next; flight++; next++; l = 0 }
		if
		:: atomic { kills < KILLS -> kills++ } goto killed
		:: true
		fi

	/* The oldest window under way: its answers, lane by lane. */
	:: flight > 0 ->
		l = 0;
		do
		:: l < L && HAS(under[0], l) ->
			if
			:: atomic { link[l].b[0].state != SENT -> traffic_receive_verdict(l); under[0] = under[0] & ~BIT(l) }
			:: atomic { cuts < CUTS && link[l].b[0].state == SENT -> cuts++ } goto connect
			:: IS_AWAY(l) && link[l].b[0].state == SENT -> goto connect
			fi;
			if
			:: answer == ADDED -> l++
			:: answer == MOVED -> goto connect		/* this lane has lost something */
			:: answer == REFUSED -> refused_base = base; refused_set = set_of; goto refused
			fi
		:: l < L && !HAS(under[0], l) -> l++
		:: l == L -> break
		od;
		atomic {
			position_advance(first[0]); first[0] = first[1]; under[0] = under[1]; under[1] = 0; flight--; l = 0;
			check_sent()
		}

	:: next > NEWEST && flight == 0 -> break

	/* A lane that was blocked can be claimed: all is begun again. */
	:: BLOCKS > 0 && flight == 0 && (blocked & ~away) != 0 ->
#ifdef FREED_LANE_GOES_ON
		l = 0;
		do
		:: atomic { l < L && HAS(blocked, l) && !HAS(away, l) -> claim(l); blocked = blocked & ~BIT(l); l++ }
		:: l < L && !(HAS(blocked, l) && !HAS(away, l)) -> l++
		:: l == L -> break
		od;
		left = 0; l = 0
#else
		goto connect
#endif

	/* The page of the second window is answered by one lane: no reason to count it. */
#ifdef ADVANCES_WITH_FIRST_LANE
	:: flight > 0 && under[0] != 0 -> atomic { position_advance(first[0]); check_sent() }
#endif
	od;
	goto idle;

refused:
	/* Of lane 0. What is behind it in this lane has failed the comparison; other lanes are not concerned. */
	if
	:: flight == 2 && HAS(under[1], 0) ->
		if
		:: atomic { link[0].b[0].state != SENT -> traffic_receive_verdict(0); under[1] = under[1] & ~BIT(0) }
		:: IS_AWAY(0) && link[0].b[0].state == SENT -> goto connect
		fi;
		if
		:: answer == MOVED
		:: answer != MOVED -> goto connect
		fi
	:: else
	fi;
	l = 1;
	do
	:: l < L ->
		if
		:: HAS(under[0], l) || HAS(under[1], l) ->
			if
			:: atomic { link[l].b[0].state != SENT -> traffic_receive_verdict(l);
				if
				:: HAS(under[0], l) -> under[0] = under[0] & ~BIT(l)
				:: else -> under[1] = under[1] & ~BIT(l)
				fi }
			:: IS_AWAY(l) && link[l].b[0].state == SENT -> goto connect
			fi;
			if
			:: answer == ADDED
			:: answer != ADDED -> goto connect
			fi
		:: else -> l++
		fi
	:: else -> break
	od;
	atomic {
		/* The fence of lane 0 is where it was. The window is read again, and those behind it. */
		at[0] = refused_base;
		defer_row(first[0], refused_set);
		next = sent + 1; flight = 0; l = 0
	}
	goto publish;

idle:
	/* Nothing is under way, and all is sent, but for what was left out. */
	if
	:: BLOCKS > 0 && (blocked & ~away) != 0 -> goto publish
	:: atomic { waiting != 0 && MAY_RETURN && (!is_broken || probes < PROBES) -> probes = probes + is_broken; assert(returns < RETURNS); returns++; returned[returns] = waiting; waiting = 0 } goto publish
	:: goto settle
	:: atomic { kills < KILLS -> kills++ } goto killed
	fi;

settle:
	/* The fence of every lane is compared, and brought to the end of what was sent. */
	l = 0;
	do
	:: l < L ->
		if
		:: !HAS(used, l) || HAS(blocked, l) -> l++
#ifdef IDLE_LANES_NOT_COMPARED
		:: HAS(used, l) && MESSAGES(NEWEST, l) == 0 -> l++
		:: HAS(used, l) && MESSAGES(NEWEST, l) != 0 ->
#else
		:: HAS(used, l) && !HAS(blocked, l) ->
#endif
			if
			:: IS_AWAY(l) -> goto connect
			:: atomic { !IS_AWAY(l) && IS_OURS(l) -> master[l].window = sent; at[l] = sent; lost_since_compared[l] = false; l++ }
			:: atomic { !IS_AWAY(l) && !IS_OURS(l) } goto connect
			:: atomic { cuts < CUTS -> cuts++ } goto connect
			fi
		fi
	:: else -> break
	od;
	if
	:: atomic { expiries < EXPIRES && expired < sent && waiting == 0 && left == 0 && MAY_EXPIRE -> expiries++;
		check_expired();
		expired = sent; l = 0; x = 0 }
		goto idle
	:: atomic { kills < KILLS -> kills++ } goto killed
	:: true
	fi;
	/* The last look, after the last failure. */
	if
	:: atomic { waiting == 0 && blocked == 0 && left == 0 && failovers == FAILOVERS && flushes == FLUSHES -> l = 0; x = 1;
		do
		:: l < L ->
			if
			:: HAS(used, l) && !IS_OURS(l) -> x = 0
			:: else
			fi;
			l++
		:: else -> break
		od }
#ifdef IDLE_LANES_NOT_COMPARED
		x = 1;
#endif
		if
		:: x == 1 -> goto done
		:: else -> goto connect
		fi
	:: goto idle
	fi;

killed:
	atomic { sent = published; next = 0; left_of[0] = 0; left_of[1] = 0; l = 0 }
	goto connect;

done:
	atomic {
		finished = true; l = 0;
		do
		:: l < L ->
			x = 1;
			do
			:: x <= W ->
				/* Rules 1 and 4: all is there, but for what was lost when the log had it no more. */
				assert(HAS(rows[x], l) == 0 || HAS(master[l].stream, x) || (x <= expired && HAS(lost[l], x) && told[l]));
				x++
			:: else -> break
			od;
			assert(!told[l] || hurt[l]);
			l++
		:: else -> break
		od
	}
}

init
{
	byte w;

	atomic {
		w = 1;
		do
		:: w <= W ->
			if
			:: rows[w] = 1
			:: rows[w] = 2
			:: rows[w] = 3
			fi;
			w++
		:: else -> break
		od;
		w = 0;
		do
		:: w < L -> late[w].state = NOTHING; run cluster(w); w++
		:: else -> break
		od;
		run dispatcher()
	}
}
