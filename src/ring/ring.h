/*
 * ring.h
 *		The rings of tables, and the states of their segments.
 */
#ifndef OUTBOX_RING_H
#define OUTBOX_RING_H

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/xid8.h"

#include "src/table/relations.h"

/* The least space that a record takes in its table: of the default endpoint, with a short id. */
#define RECORD_BYTES	60

/* In tables with more blocks than this, rows are not counted but estimated from the first blocks. */
#define COUNTED_BLOCKS	4096

typedef enum SegmentState
{
	SEGMENT_EMPTY,
	SEGMENT_CURRENT,
	SEGMENT_SEALED,
	SEGMENT_FILLING,
	SEGMENT_QUIET,
	SEGMENT_RETIRED
} SegmentState;

typedef struct Segment
{
	SegmentState state;
	TimestampTz since;			/* when it came into this state */
	FullTransactionId tx;		/* transaction that changed its state */
	TimestampTz published_at;	/* quiet: when all its messages were first
								 * seen in Redis; 0 = not yet */
	int			compacted_into; /* history segment that its keys were copied
								 * to; -1 = none */
	int			level;			/* history: how often its keys were merged */
	int64		keys;			/* history: how many keys it holds */
} Segment;

typedef struct Ring
{
	int			nsegments;
	int			current;		/* -1 for the history, which is never written
								 * by sessions */
	uint32		live;			/* a bit for each segment that is live */
	Segment		segments[MAX_SEGMENTS];
} Ring;

StaticAssertDecl(MAX_SEGMENTS <= 32, "the bits of Ring.live and of Absence");

typedef struct Rings
{
	int64		generation;		/* of all rings; grows with every change */
	Ring		ring[RING_KINDS];
} Rings;

extern const Rings *rings_now(void);
extern bool rings_are_shared(void);
extern void rings_read(Rings *rings);
extern int64 rings_generation(void);
extern int64 rings_shared_generation(void);
extern void rings_reload(void);
extern Relation ring_open_current(RingKind kind, int *segment);

extern bool segment_try_lock(RingKind kind, int segment);
extern bool segment_try_lock_to_write(RingKind kind, int segment);
extern BlockNumber segment_blocks(RingKind kind, int segment);
extern int64 segment_count_keys(RingKind kind, int n, const Segment *segment);

extern const char *ring_name(RingKind kind);
extern const char *segment_state_name(SegmentState state);

/* Check whether a segment may hold rows that count. */
static inline bool
segment_is_live(const Segment *segment)
{
	return segment->state == SEGMENT_CURRENT || segment->state == SEGMENT_SEALED || segment->state == SEGMENT_QUIET;
}

#endif							/* OUTBOX_RING_H */
