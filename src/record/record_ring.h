/*
 * record_ring.h
 *		The ring of record tables: where records are kept unless an endpoint has
 *		a table of its own.
 */
#ifndef OUTBOX_RECORD_RING_H
#define OUTBOX_RECORD_RING_H

#include "executor/tuptable.h"

#include "src/record/record_look.h"
#include "src/record/record_name.h"
#include "src/ring/ring.h"

extern RecordLook record_ring_look(const RecordName *name, RecordMemo *memo);
extern RecordLook record_ring_look_once(const RecordName *name, const Rings *rings);
extern bool record_ring_holds(const pg_uuid_t *key);
extern char *record_ring_endpoint(TupleTableSlot *row);

#endif							/* OUTBOX_RECORD_RING_H */
