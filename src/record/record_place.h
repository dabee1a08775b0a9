/*
 * record_place.h
 *		What each place that keeps records can do; for claim.c and the places
 *		themselves.
 */
#ifndef OUTBOX_RECORD_PLACE_H
#define OUTBOX_RECORD_PLACE_H

#include "utils/relcache.h"

#include "src/record/record_look.h"
#include "src/record/record_name.h"
#include "src/ring/ring.h"

struct KnownTable;

/* One attempt to claim a message. */
typedef struct RecordClaim
{
	const RecordName *name;
	const RecordMemo *memo;		/* what a lookup has proved; NULL = nothing,
								 * or too long ago */
	TransactionId xmax;			/* of the lookup of begin, if there was one */
	Relation	table;			/* that the record goes to */
	Relation	index;			/* the ring: on its keys */
	int			segment;		/* the ring: whose table that is */
	ErrorData  *refusal;		/* of the last insert, or NULL */
	int64		generation;		/* the ring: of the rings, before the look */
	bool		forgotten;		/* the ring: what is there does not count, and
								 * is to be deleted */
	struct KnownTable *known;	/* a custom record table: what is known of it */
} RecordClaim;

/* A place; claim.c calls these in this order, see there. */
typedef struct RecordPlace
{
	/* Does what may take long, before the lock on the key is taken. */
	void		(*open) (RecordClaim *claim);

	/*
	 * Looks up the record, holding the lock on the key; waits for no
	 * transaction.
	 */
	RecordLook	(*look) (RecordClaim *claim);

	/*
	 * Writes the record, which is nowhere. Returns false if it is there
	 * nevertheless: then claim->refusal says what to raise if nothing is
	 * found.
	 */
	bool		(*insert) (RecordClaim *claim);

	/*
	 * Closes what is open, and keeps locks that last to the end of the
	 * transaction.
	 */
	void		(*close) (RecordClaim *claim);
} RecordPlace;

extern const RecordPlace record_ring;
extern const RecordPlace record_table;

#endif							/* OUTBOX_RECORD_PLACE_H */
