/*
 * filter.h
 *		Bloom filters: which segments certainly do not hold a key.
 */
#ifndef OUTBOX_FILTER_H
#define OUTBOX_FILTER_H

#include "utils/uuid.h"

#include "src/ring/ring.h"
#include "src/shared.h"

/* What a filter is being built for. */
typedef enum FilterUse
{
	FILTER_OF_SEGMENT,			/* a quiet one that has none */
	FILTER_OF_MERGE,			/* the target, while it is filled */
	FILTER_OF_CURRENT			/* one that is written, before its first row */
} FilterUse;

#define FILTER_USES	3

/* For each ring, one bit for each segment that certainly does not hold a key. */
typedef struct Absence
{
	uint32		segments[RING_KINDS];
} Absence;

extern void filter_request(void);
extern void filter_startup(void);

extern void filters_probe(const Rings *rings, const pg_uuid_t *key, Absence *absence);
extern bool filter_excludes(const Rings *rings, RingKind kind, int segment, const pg_uuid_t *key);
extern void filter_note(RingKind kind, int segment, const pg_uuid_t *key);

extern bool filter_begin(FilterUse use, int64 keys);
extern void filter_add(FilterUse use, const pg_uuid_t *key);
extern void filter_publish(FilterUse use, RingKind kind, int segment, uint64 tag);
extern void filter_keep(RingKind kind, int segment, uint64 old_tag, uint64 new_tag);
extern void filter_abandon(FilterUse use);
extern bool filter_is_there(RingKind kind, int segment, const Segment *state);
extern bool filter_is_large_enough(RingKind kind, int segment, int64 keys);
extern void filters_forget_stale(const Rings *rings);
extern void filters_forget_all(DatabaseShared *shared);

#endif							/* OUTBOX_FILTER_H */
