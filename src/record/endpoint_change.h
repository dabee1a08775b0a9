/*
 * endpoint_change.h
 *		Keeps changes of endpoints from being acted on before all sessions can know of them.
 */
#ifndef OUTBOX_ENDPOINT_CHANGE_H
#define OUTBOX_ENDPOINT_CHANGE_H

#include "executor/tuptable.h"

extern void endpoint_change_wait(TupleTableSlot *row);

#endif							/* OUTBOX_ENDPOINT_CHANGE_H */
