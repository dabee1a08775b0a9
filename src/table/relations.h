/*
 * relations.h
 *		The OIDs of our relations, and the entry lock.
 */
#ifndef OUTBOX_RELATIONS_H
#define OUTBOX_RELATIONS_H

#include "storage/lockdefs.h"

/* The rings; ring.h has the states of their segments. */
typedef enum RingKind
{
	RING_LOG,
	RING_RECORD,
	RING_HISTORY				/* records that were compacted */
} RingKind;

#define RING_KINDS	3
#define MAX_SEGMENTS	24		/* the extension script makes no more of any
								 * kind */
#define MAX_RELATIONS	((RING_KINDS + 1) * MAX_SEGMENTS + 16)	/* at most 16 are of no
																 * ring */

/* The relations of one segment of a ring. */
typedef struct SegmentRelations
{
	Oid			table;			/* log_N or record_N */
	Oid			window;			/* window_N; log only */
} SegmentRelations;

typedef struct Relations
{
	Oid			extension;
	Oid			instance;
	Oid			owner;			/* of the instance: our processes act with the
								 * privileges of that role */
	Oid			ring;
	Oid			endpoint;
	Oid			compacted;
	Oid			forgotten;
	Oid			destination;
	Oid			deferred;
	Oid			loss;
	Oid			era;
	Oid			mapping;
	Oid			lane;
	Oid			log_id_seq;
	bool		lacks_some;		/* a name was not found: its OID is invalid */
	int			nsegments[RING_KINDS];
	SegmentRelations segments[RING_KINDS][MAX_SEGMENTS];
	int			nfound;
	Oid			found[MAX_RELATIONS];	/* all of these */
} Relations;

/* The name of the schema that holds our tables. */
#define OUTBOX_SCHEMA "outbox"

extern void relations_init(void);
extern const Relations *relations_enter(void);
extern const Relations *relations_try_enter(void);
extern void relations_lock_for_drop(void);
extern void relations_raise_missing(const char *name);

extern bool relations_lock_to_end(Oid relation, LOCKMODE mode);
extern void relations_unlock_early(Oid relation, LOCKMODE mode);

#endif							/* OUTBOX_RELATIONS_H */
