/*
 * supervision.h
 *		Starts the bookkeeper of our database, and ends it if it hangs.
 */
#ifndef OUTBOX_SUPERVISION_H
#define OUTBOX_SUPERVISION_H

#include "bgworker/window/position.h"

extern void supervision_attend(uint64 tables, const Position *position);
extern void supervision_go_back(const Position *position, Oid table);
extern int64 supervision_marked(void);
extern long supervision_ms_until_due(void);
extern void supervision_ask_for_expiry(void);
extern bool supervision_expiry_has_ended(void);
extern void supervision_end(void);

#endif							/* OUTBOX_SUPERVISION_H */
