/*
 * ring.h
 *		The rings of tables, and the states of their slots.
 */
#ifndef OUTBOX_RING_H
#define OUTBOX_RING_H

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/xid8.h"

/* A count of the rows of more blocks than these is estimated from the first ones. */
#define COUNTED_BLOCKS	4096

typedef enum RingKind
{
	RING_LOG,
	RING_RECORD,
	RING_HISTORY				/* records that were packed */
} RingKind;

#define RING_KINDS	3
#define MAX_SLOTS	24			/* the script makes no more of any kind */

typedef enum SlotState
{
	SLOT_EMPTY,
	SLOT_CURRENT,
	SLOT_SEALED,
	SLOT_FILLING,
	SLOT_QUIET,
	SLOT_RETIRED
} SlotState;

typedef struct Slot
{
	SlotState	state;
	TimestampTz since;			/* when it came into this state */
	FullTransactionId tx;		/* transaction that brought it there */
	TimestampTz published_at;	/* quiet: when all its messages were first
								 * seen in Redis; 0 = not yet */
	int			packed_into;	/* history slot that its keys go to; -1 = none */
	int			level;			/* history: how often merged */
	int64		keys;			/* history: how many */
} Slot;

typedef struct Ring
{
	int			nslots;
	int			current;		/* -1 for the history, which is never written by
								 * sessions */
	Slot		slots[MAX_SLOTS];
} Ring;

typedef struct Rings
{
	int64		generation;		/* of all; grows with every change */
	Ring		ring[RING_KINDS];
} Rings;

extern void rings_read(Rings *rings);
extern int64 rings_generation(void);
extern int64 rings_shared_generation(void);
extern void rings_reload(void);
extern Relation ring_open_current(RingKind kind);

extern BlockNumber slot_blocks(RingKind kind, int slot);
extern int64 slot_count_keys(RingKind kind, int n, const Slot *slot);

extern const char *ring_name(RingKind kind);
extern const char *slot_state_name(SlotState state);

/* Whether a slot may hold rows that count. */
static inline bool
slot_is_live(const Slot *slot)
{
	return slot->state == SLOT_CURRENT || slot->state == SLOT_SEALED || slot->state == SLOT_QUIET;
}

#endif							/* OUTBOX_RING_H */
