/*
 * relations.h
 *		The oids of our relations, and the gate that guards them.
 */
#ifndef OUTBOX_RELATIONS_H
#define OUTBOX_RELATIONS_H

#include "src/ring.h"

/* The relations of one slot of a ring. */
typedef struct SlotRelations
{
	Oid			table;			/* log_N or record_N */
	Oid			index;			/* of the log on tx, of the record on key */
	Oid			window;			/* window_N; log only */
	Oid			window_index;	/* on number */
} SlotRelations;

typedef struct Relations
{
	Oid			extension;
	Oid			instance;
	Oid			ring;
	Oid			endpoint;
	Oid			packed;
	Oid			destination;
	Oid			deferred;
	Oid			deferred_index; /* on id */
	Oid			deferred_key_index;
	Oid			message_id_seq;
	int			nslots[RING_KINDS];
	SlotRelations slots[RING_KINDS][MAX_SLOTS];
} Relations;

/* How the schema that holds our tables is called. */
#define OUTBOX_SCHEMA "outbox"

extern void relations_init(void);
extern const Relations *relations_enter(void);
extern const Relations *relations_try_enter(void);
extern void relations_lock_for_drop(void);

#endif							/* OUTBOX_RELATIONS_H */
