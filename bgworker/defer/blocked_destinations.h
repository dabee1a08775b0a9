/*
 * blocked_destinations.h
 *		Destinations that must not be sent to for now.
 */
#ifndef OUTBOX_BLOCKED_DESTINATIONS_H
#define OUTBOX_BLOCKED_DESTINATIONS_H

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "nodes/pg_list.h"

#include "bgworker/defer/destination_settings.h"

/* State of a destination that has refused a message. */
typedef enum BlockedState
{
	BLOCKED_WAITING,			/* until the head is due */
	BLOCKED_PROBING,			/* the head was returned; its window is under
								 * way */
	BLOCKED_DRAINING			/* the probe was accepted: return the rest */
} BlockedState;

typedef struct Blocked
{
	char	   *dest;			/* hash key; there may be very many, and few
								 * names are long */
	BlockedState state;
	bool		paused;			/* by outbox_pause(), or treated so: nothing
								 * is due */
	bool		is_locked;		/* only treated so, while rows of it are
								 * locked that are to be held or let go */
	bool		is_apart;		/* a hash slot of its streams cannot be
								 * written to: nothing is due */
	bool		is_refused;		/* Redis has refused a message, and accepted
								 * none since */
	int64		waiting;		/* how many messages wait */
	int64		head;			/* lowest id of these */
	TimestampTz due;			/* when the head is to be tried again */
	TimestampTz at;				/* when the head was enqueued */

	/* Where it is filed; for blocked_destinations.c only. */
	dlist_head *list;			/* the list it is in while probing, draining
								 * or apart, or NULL */
	dlist_node	in_list;
	pairingheap_node by_due;	/* if it waits to be tried */
	pairingheap_node by_age;	/* if anything waits */
} Blocked;

extern void blocked_reset(void);
extern Blocked *blocked_find(const text *dest);
extern Blocked *blocked_open(const char *dest);
extern void blocked_take(Blocked *blocked);
extern void blocked_file(Blocked *blocked);
extern void blocked_rejoin_all(void);

extern void blocked_pause(const char *dest);
extern void blocked_pause_locked(const char *dest);
extern List *blocked_names(BlockedState state);
extern void blocked_keep(List *names, BlockedState state);

extern Blocked *blocked_next_due(void);
extern int64 blocked_first_id(const Blocked *blocked);
extern Blocked *blocked_next_probing(void);
extern Blocked *blocked_next_draining(void);
extern int64 blocked_draining(void);
extern int64 blocked_waiting(void);
extern int64 blocked_refused(void);
extern int64 blocked_paused(void);
extern TimestampTz blocked_oldest(void);

#endif							/* OUTBOX_BLOCKED_DESTINATIONS_H */
