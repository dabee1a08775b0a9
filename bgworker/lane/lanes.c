/*
 * lanes.c
 *		The lanes that messages are sent in.
 *
 * Called by fence_claims.c, which claims them, and by page.c, which asks for the lane of a
 * message; dispatcher.c has due_messages.c ask which destinations have to wait. All
 * messages for a single Redis are one lane. In a Redis Cluster the messages for the
 * streams of a hash slot are one: a script reaches the keys of one slot only, and slots
 * move one by one. Which lanes are in use is on disk (used_lanes.c); a message for another
 * one must wait until that is.
 *
 * Our own lane is always in use. In a single Redis it is the only one. In a cluster no
 * message is in it: its fence tells whether this is the Redis that we were connected
 * to, and how far we got, as long as none was sent.
 *
 * A lane may be blocked: its slot is on its way to another node, or the master that has
 * it is away. Others go on. What is for that lane is left out, neither sent nor
 * deferred, and no window counts as published from the first one on of which something was
 * left out (position_leave_out()), though the fences of other lanes pass it. Nothing of
 * that is on disk. When a lane can be written to again, the connection is begun again, as
 * after any failure: publishing resumes before the first message that was left out for
 * it, and each lane leaves out what its own fence covers. As long as a lane stays
 * blocked, a connection that is begun again does not go back to what was left out for
 * it: there may be millions of messages behind.
 *
 *	 died while a lane is blocked	the next process begins behind what is published,
 *								so before the first message that was left out, even of
 *								a lane that is not noted in outbox.lane yet
 *	 the log meanwhile			nothing is removed from it: the fence of a blocked lane
 *								cannot be taken along
 *	 a late batch of ours		is in its fence when that is read and claimed
 *
 * Nothing here talks to Redis.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "bgworker/lane/lanes.h"
#include "bgworker/lane/stream_mapping.h"
#include "bgworker/lane/used_lanes.h"
#include "bgworker/process/transaction.h"
#include "src/redis_cluster/hash_slot.h"
#include "src/unique_id.h"
#include "src/utf8.h"

static char id[UNIQUE_ID_BYTES];	/* of the instance, as text */
static bool is_clustered;
static Lane own;				/* of all messages in a single Redis */
static Lane *by_slot[HASH_SLOTS];	/* NULL = never asked for */
static Lane *lanes[HASH_SLOTS + 1]; /* in use */
static int	nlanes;
static Lane *blocked[HASH_SLOTS + 1];	/* would be in use, and cannot be
										 * written to for now */
static int	nblocked;
static MemoryContext reasons;	/* why not */
static int64 left_out[HASH_SLOTS];	/* the first window of which something was
									 * left out for that slot, and not looked
									 * at again since it could be written to;
									 * 0 = none */
static Lane *of_slot[HASH_SLOTS];	/* one of these, whether it is blocked or
									 * not; NULL = it is not in use */
static int	wanted[HASH_SLOTS]; /* and slots that are asked for and are not */
static int	nwanted;
static bool is_wanted[HASH_SLOTS];

static bool any_is_blocked(const Message *message, int64 window);
static int	slot_of(const Route *route, const Message *message);
static void note_slot(const char *bytes, size_t size, void *arg);

/* Sets the instance that the fences are of. */
void
lanes_init(const char *instance)
{
	strlcpy(id, instance, sizeof(id));
}

/* Begins a connection. In a cluster only our own lane is in use until others are entered. No fence is ours yet. */
void
lanes_begin(bool clustered)
{
	is_clustered = clustered;
	lane_init(&own, id);
	lanes[0] = &own;
	nlanes = 1;
	nwanted = 0;
	nblocked = 0;
	if (reasons)
		MemoryContextReset(reasons);
	memset(is_wanted, 0, sizeof(is_wanted));
	memset(of_slot, 0, sizeof(of_slot));
}

/* Takes the lane of a hash slot into use. Its fence is not ours yet. */
void
lanes_enter(int slot)
{
	Lane	   *lane = by_slot[slot];

	if (lane == NULL)
		lane = by_slot[slot] = MemoryContextAlloc(TopMemoryContext, sizeof(Lane));
	lane_init_slot(lane, id, slot);
	of_slot[slot] = lane;
	lanes[nlanes++] = lane;
}

/* Returns how many lanes are in use, but for those that are blocked. */
int
lanes_count(void)
{
	return nlanes;
}

/* Returns one of these. */
Lane *
lanes_get(int n)
{
	return lanes[n];
}

/* Returns the lane of a message, which may be blocked; NULL if it is not in use, which it is wanted for from now on. */
Lane *
lanes_find(const Route *route, const Message *message)
{
	int			slot;

	if (!is_clustered)
		return lanes[0];
	slot = slot_of(route, message);
	if (of_slot[slot])
		return of_slot[slot];
	if (!is_wanted[slot])
		wanted[nwanted++] = slot;
	is_wanted[slot] = true;
	return NULL;
}

/* Returns how many lanes are wanted. */
int
lanes_wanted(void)
{
	return nwanted;
}

/* Takes the lanes that are wanted into use. Returns which one of those in use is the first of them. */
int
lanes_enter_wanted(void)
{
	int			first = nlanes;

	for (int i = 0; i < nwanted; i++)
	{
		is_wanted[wanted[i]] = false;
		lanes_enter(wanted[i]);
	}
	nwanted = 0;
	return first;
}

/* Notes why a lane cannot be written to for now. */
void
lanes_block(Lane *lane, const char *why)
{
	if (reasons == NULL)
		reasons = AllocSetContextCreate(TopMemoryContext, "outbox blocked lanes", ALLOCSET_SMALL_SIZES);
	lane->blocked = MemoryContextStrdup(reasons, why);
	lane->at = place_at_end(PG_INT64_MAX);
	lane->wanted[0] = '\0';
}

/*
 * Has a hash slot count as blocked that no message was for: something else is there that
 * Redis is to be told first. Nothing may be under way. Returns false if its lane is in use,
 * or is to be.
 */
bool
lanes_block_unused(int slot, const char *why)
{
	int			first = nlanes;

	if (of_slot[slot] || is_wanted[slot])
		return false;
	lanes_enter(slot);
	lanes_block(of_slot[slot], why);
	lanes_set_blocked_apart(first);
	return true;
}

/* Notes that a message of a window is left out, because its lane is blocked. */
void
lanes_leave_out(const Lane *lane, int64 window)
{
	int64	   *first = &left_out[lane->slot];

	if (*first == 0 || window < *first)
		*first = window;
}

/* Returns the first window of which something was left out; 0 if there is none. */
int64
lanes_first_left_out(void)
{
	int64		first = 0;

	for (int slot = 0; slot < HASH_SLOTS; slot++)
	{
		if (left_out[slot] != 0 && (first == 0 || left_out[slot] < first))
			first = left_out[slot];
	}
	return first;
}

/*
 * Returns up to which window all is sent, but for lanes that are blocked, if that was so
 * for `sent` on the last connection. It goes back to what was left out for lanes that are
 * not blocked any more. That does not count as left out from now on.
 */
int64
lanes_take_freed(int64 sent)
{
	for (int slot = 0; slot < HASH_SLOTS; slot++)
	{
		if (left_out[slot] == 0 || (of_slot[slot] && of_slot[slot]->blocked))
			continue;
		sent = Min(sent, left_out[slot] - 1);
		left_out[slot] = 0;
	}
	return sent;
}

/* Forgets what was left out: all of it is looked at again. */
void
lanes_forget_left_out(void)
{
	memset(left_out, 0, sizeof(left_out));
}

/*
 * Takes those into use as well for which something was left out, and which are not
 * noted as used: their fences are read to find out whether they still are blocked.
 */
void
lanes_enter_left_out(void)
{
	for (int slot = 0; slot < HASH_SLOTS; slot++)
	{
		if (left_out[slot] != 0 && of_slot[slot] == NULL)
			lanes_enter(slot);
	}
}

/* Takes those of them out of use that are not: they are wanted again as soon as their messages come. */
void
lanes_drop_unused(void)
{
	int			kept = 0;

	for (int i = 0; i < nlanes; i++)
	{
		if (lanes[i] == &own || used_lanes_include(lanes[i]->slot))
			lanes[kept++] = lanes[i];
		else
			of_slot[lanes[i]->slot] = NULL;
	}
	nlanes = kept;
}

/* Sets those that are blocked apart from the lanes in use, from that one on. */
void
lanes_set_blocked_apart(int first)
{
	int			kept = first;

	for (int i = first; i < nlanes; i++)
	{
		if (lanes[i]->blocked)
			blocked[nblocked++] = lanes[i];
		else
			lanes[kept++] = lanes[i];
	}
	nlanes = kept;
}

/* Takes all that are blocked into use again, to be tried. Returns which one of those in use is the first of them. */
int
lanes_enter_blocked(void)
{
	int			first = nlanes;

	for (int i = 0; i < nblocked; i++)
	{
		blocked[i]->blocked = NULL;
		lanes[nlanes++] = blocked[i];
	}
	nblocked = 0;
	if (reasons)
		MemoryContextReset(reasons);
	return first;
}

/* Returns how many lanes are blocked. */
int
lanes_blocked(void)
{
	return nblocked;
}

/* Returns why one of them is; NULL if none is. */
const char *
lanes_why_blocked(void)
{
	return nblocked > 0 ? blocked[0]->blocked : NULL;
}

/*
 * Check whether a lane is blocked that messages of a destination may be for: the next ones,
 * or those of windows that may be read again, which may be for streams of before. Names
 * of streams can be converted only in a transaction: this begins one if none is open. If
 * the extension is being dropped, they may be for one.
 */
bool
lanes_are_blocked_for(const char *dest)
{
	Message		message = {0};
	int64		window = PG_INT64_MAX;
	const StreamMapping *mapping;
	bool		is_alone = !IsTransactionState();
	bool		found;

	if (nblocked == 0)
		return false;
	if (is_alone && !transaction_begin("looking for hash slots"))
		return true;
	message.dest = cstring_to_text(dest);
	do
	{
		found = any_is_blocked(&message, window);
		mapping = stream_mapping_find(message.dest, window);
		window = mapping ? mapping->after_window : 0;
	} while (!found && mapping);
	pfree(message.dest);
	if (is_alone)
		transaction_commit();
	return found;
}

/* Check whether a lane is blocked that messages of a destination in a window may be for. To a name that cannot be converted none is sent. */
static bool
any_is_blocked(const Message *message, int64 window)
{
	int			partitions;
	Route		route = route_of_destination(message->dest, window, &partitions);
	const Lane *lane;

	if (!utf8_is_possible(route.stream ? route.stream : message->dest))
		return false;
	do
	{
		route.partition = --partitions;
		lane = of_slot[slot_of(&route, message)];
		if (lane && lane->blocked)
			return true;
	} while (partitions > 0);
	return false;
}

/* Check whether partitions are to change where a window ends, which is not while lanes are blocked (redis_session_settle_partitions()). */
bool
lanes_await_partitions(void)
{
	return nblocked == 0 && destination_any_has_new_partitions();
}

/* Returns the hash slot of the stream of a message. */
static int
slot_of(const Route *route, const Message *message)
{
	int			slot;

	route_write_stream(route, message, note_slot, &slot);
	return slot;
}

/* An EntrySink: computes the slot of a key. */
static void
note_slot(const char *bytes, size_t size, void *arg)
{
	*(int *) arg = hash_slot_of(bytes, size);
}
