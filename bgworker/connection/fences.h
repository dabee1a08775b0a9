/*
 * fences.h
 *		The fences of all lanes in use.
 */
#ifndef OUTBOX_FENCES_H
#define OUTBOX_FENCES_H

#include "bgworker/window/position.h"

extern void fences_init(void);
extern bool fences_are_reached(void);
extern bool fences_compare(void);
extern bool fences_move(int64 number, const pg_uuid_t *uuid);
extern bool fences_take_along(int64 number, const pg_uuid_t *uuid);
extern bool fences_settle(const Position *position);
extern bool fences_set_wanted(void);
extern bool fences_send_wanted(int first);

#endif							/* OUTBOX_FENCES_H */
