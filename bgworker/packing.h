/*
 * packing.h
 *		Merges slots of records, and of the history, into one of the history.
 */
#ifndef OUTBOX_PACKING_H
#define OUTBOX_PACKING_H

extern void packing_wake(void);
extern bool packing_step(void);

#endif							/* OUTBOX_PACKING_H */
