/*
 * settled_stores.h
 *		Since when no deduplication store has lost ids.
 */
#ifndef OUTBOX_SETTLED_STORES_H
#define OUTBOX_SETTLED_STORES_H

extern bool settled_stores_are_all(void);
extern void settled_stores_note(void);
extern void settled_stores_forget(void);
extern void settled_stores_expect_addition(void);

#endif							/* OUTBOX_SETTLED_STORES_H */
