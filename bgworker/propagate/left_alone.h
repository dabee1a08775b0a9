/*
 * left_alone.h
 *		Custom record tables on which a statement did not end.
 */
#ifndef OUTBOX_LEFT_ALONE_H
#define OUTBOX_LEFT_ALONE_H

#include "src/shared.h"

extern void left_alone_init(void);
extern void left_alone_add(Bookkeeping *books, Oid table);
extern void left_alone_check(Oid table);
extern Oid	left_alone_ended_at(void);

#endif							/* OUTBOX_LEFT_ALONE_H */
