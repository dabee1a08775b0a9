/*
 * blocked_destinations.c
 *		Destinations that must not be sent to for now, and which of them is next.
 *
 * Which they are is decided in deferral.c. Used by it and due_messages.c, and asked by
 * deferred_count.c; kept in the memory of the dispatcher. There may be thousands, and they are looked up for each
 * message, window and wait, so nothing here walks over all of them: lists and
 * heaps hold them by what they wait for. An entry is taken out of these before
 * it is changed and filed again afterwards; an entry for which no message waits
 * is then removed.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/defer/blocked_destinations.h"
#include "bgworker/defer/reload_pace.h"
#include "src/limits.h"

static MemoryContext context;
static HTAB *all_blocked;
static dlist_head probing;
static dlist_head draining;		/* the next in turn comes first */
static int64 ndraining;
static dlist_head apart;
static pairingheap by_due;
static pairingheap by_age;
static int64 waiting;			/* messages of all of them */
static int64 nrefused;
static int64 npaused;

static uint32 hash_name(const void *key, Size size);
static int	compare_names(const void *a, const void *b, Size size);
static int	compare_due(const pairingheap_node *a, const pairingheap_node *b, void *arg);
static int	compare_age(const pairingheap_node *a, const pairingheap_node *b, void *arg);
static bool waits_to_be_tried(const Blocked *blocked);
static bool waits_for_resume(const Blocked *blocked);
static dlist_head *list_of(const Blocked *blocked);

/* Removes all entries. */
void
blocked_reset(void)
{
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "outbox blocked destinations", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	all_blocked = hash_create("outbox blocked destinations", 16,
							  &(HASHCTL) {.keysize = sizeof(char *), .entrysize = sizeof(Blocked), .hcxt = context,
										  .hash = hash_name, .match = compare_names},
							  HASH_ELEM | HASH_CONTEXT | HASH_FUNCTION | HASH_COMPARE);
	dlist_init(&probing);
	dlist_init(&draining);
	dlist_init(&apart);
	ndraining = 0;
	by_due.ph_compare = compare_due;
	pairingheap_reset(&by_due);
	by_age.ph_compare = compare_age;
	pairingheap_reset(&by_age);
	waiting = 0;
	nrefused = 0;
	npaused = 0;
}

/* Returns the entry of a destination; NULL if it may be sent to. */
Blocked *
blocked_find(const text *dest)
{
	char		name[MAX_NAME_BYTES + 1];

	if (hash_get_num_entries(all_blocked) == 0)
		return NULL;
	destination_key(dest, name);
	return hash_search(all_blocked, &(const char *) {name}, HASH_FIND, NULL);
}

/* Takes out the entry of a destination, to be changed and filed again. Makes one if there is none. */
Blocked *
blocked_open(const char *dest)
{
	Blocked    *blocked = hash_search(all_blocked, &dest, HASH_FIND, NULL);
	char	   *name;

	if (blocked)
	{
		blocked_take(blocked);
		return blocked;
	}
	name = MemoryContextStrdup(context, dest);
	blocked = hash_search(all_blocked, &name, HASH_ENTER, NULL);
	memset(blocked, 0, sizeof(Blocked));
	blocked->dest = name;
	return blocked;
}

/* Takes an entry out of the lists and heaps, to be changed and filed again. */
void
blocked_take(Blocked *blocked)
{
	if (waits_to_be_tried(blocked))
		pairingheap_remove(&by_due, &blocked->by_due);
	if (blocked->waiting > 0)
		pairingheap_remove(&by_age, &blocked->by_age);
	if (blocked->list)
	{
		dlist_delete(&blocked->in_list);
		ndraining -= blocked->list == &draining;
	}
	blocked->list = NULL;
	waiting -= blocked->waiting;
	nrefused -= blocked->is_refused;
	npaused -= waits_for_resume(blocked);
}

/* Files an entry that was taken out. It may be removed by that. */
void
blocked_file(Blocked *blocked)
{
	if (blocked->waiting == 0 && !blocked->paused && blocked->state != BLOCKED_PROBING)
	{
		char	   *name = blocked->dest;

		(void) hash_search(all_blocked, &name, HASH_REMOVE, NULL);
		pfree(name);
		return;
	}
	if (waits_to_be_tried(blocked))
		pairingheap_add(&by_due, &blocked->by_due);
	if (blocked->waiting > 0)
		pairingheap_add(&by_age, &blocked->by_age);
	blocked->list = list_of(blocked);
	if (blocked->list)
	{
		dlist_push_tail(blocked->list, &blocked->in_list);
		ndraining += blocked->list == &draining;
	}
	waiting += blocked->waiting;
	nrefused += blocked->is_refused;
	npaused += waits_for_resume(blocked);
}

/* Files all that are apart like others again. */
void
blocked_rejoin_all(void)
{
	while (!dlist_is_empty(&apart))
	{
		Blocked    *blocked = dlist_head_element(Blocked, in_list, &apart);

		blocked_take(blocked);
		blocked->is_apart = false;
		blocked_file(blocked);
	}
}

/* Pauses a destination, so that nothing is due there. */
void
blocked_pause(const char *dest)
{
	Blocked    *blocked = blocked_open(dest);

	blocked->paused = true;
	blocked_file(blocked);
}

/* The same for one of which rows are locked that are to be held or let go. */
void
blocked_pause_locked(const char *dest)
{
	Blocked    *blocked = blocked_open(dest);

	blocked->is_locked = !blocked->paused;
	blocked->paused = true;
	blocked_file(blocked);
}

/* Returns the names of all that are tried, or drained. */
List *
blocked_names(BlockedState state)
{
	dlist_head *list = state == BLOCKED_PROBING ? &probing : &draining;
	List	   *names = NIL;
	dlist_iter	iter;

	dlist_foreach(iter, list)
		names = lappend(names, pstrdup(dlist_container(Blocked, in_list, iter.cur)->dest));
	return names;
}

/* Has destinations be in that state, unless they are paused. */
void
blocked_keep(List *names, BlockedState state)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		Blocked    *blocked = blocked_open(lfirst(cell));

		if (!blocked->paused)
			blocked->state = state;
		blocked_file(blocked);
	}
}

/* Returns the one whose head is due first; NULL if none waits to be tried. */
Blocked *
blocked_next_due(void)
{
	return pairingheap_is_empty(&by_due) ? NULL :
		pairingheap_container(Blocked, by_due, pairingheap_first(&by_due));
}

/* Returns from which id on messages may wait: before the first one that is known only if others have retried some. */
int64
blocked_first_id(const Blocked *blocked)
{
	return reload_pace_is_asked() ? 0 : blocked->head;
}

/* Returns one whose probe is under way; NULL if there is none. */
Blocked *
blocked_next_probing(void)
{
	return dlist_is_empty(&probing) ? NULL : dlist_head_element(Blocked, in_list, &probing);
}

/*
 * Returns the one that has waited longest for its turn to be drained; NULL if
 * there is none.
 */
Blocked *
blocked_next_draining(void)
{
	return dlist_is_empty(&draining) ? NULL : dlist_head_element(Blocked, in_list, &draining);
}

/* Returns how many are to be drained. */
int64
blocked_draining(void)
{
	return ndraining;
}

/* Returns how many messages wait in all. */
int64
blocked_waiting(void)
{
	return waiting;
}

/* Returns how many destinations refuse messages. */
int64
blocked_refused(void)
{
	return nrefused;
}

/* Returns how many destinations have messages that wait for outbox_resume(). */
int64
blocked_paused(void)
{
	return npaused;
}

/* Returns when the oldest of the heads was enqueued; 0 if nothing waits. */
TimestampTz
blocked_oldest(void)
{
	return pairingheap_is_empty(&by_age) ? 0 :
		pairingheap_container(Blocked, by_age, pairingheap_first(&by_age))->at;
}

/* Hashes the name that a key points to. */
static uint32
hash_name(const void *key, Size size)
{
	return string_hash(*(char *const *) key, MAX_NAME_BYTES + 1);
}

/*
 * Compares the names that two keys point to; 0 = they are the same. A row that an
 * administrator has written may have a longer one than blocked_find() looks for.
 */
static int
compare_names(const void *a, const void *b, Size size)
{
	return strncmp(*(char *const *) a, *(char *const *) b, MAX_NAME_BYTES);
}

/* Orders by the time that is due first. The first element of a pairing heap is its greatest. */
static int
compare_due(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(Blocked, by_due, a)->due;
	TimestampTz right = pairingheap_const_container(Blocked, by_due, b)->due;

	return left < right ? 1 : left > right ? -1 : 0;
}

/* The same by the age of the head, the oldest first. */
static int
compare_age(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(Blocked, by_age, a)->at;
	TimestampTz right = pairingheap_const_container(Blocked, by_age, b)->at;

	return left < right ? 1 : left > right ? -1 : 0;
}

/* Check whether the head is to be tried when it is due. */
static bool
waits_to_be_tried(const Blocked *blocked)
{
	return blocked->state == BLOCKED_WAITING && blocked->waiting > 0 && !blocked->paused && !blocked->is_apart;
}

/* Check whether messages wait for outbox_resume(). */
static bool
waits_for_resume(const Blocked *blocked)
{
	return blocked->waiting > 0 && blocked->paused && !blocked->is_locked;
}

/* Returns the list that an entry belongs in; NULL = none. */
static dlist_head *
list_of(const Blocked *blocked)
{
	if (blocked->is_apart)
		return &apart;
	if (blocked->state == BLOCKED_PROBING)
		return &probing;
	if (blocked->state == BLOCKED_DRAINING && blocked->waiting > 0 && !blocked->paused)
		return &draining;
	return NULL;
}
