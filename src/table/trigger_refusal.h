/*
 * trigger_refusal.h
 *		Which of our tables can have no trigger.
 */
#ifndef OUTBOX_TRIGGER_REFUSAL_H
#define OUTBOX_TRIGGER_REFUSAL_H

extern void trigger_refusal_check(Oid table, const char *name);

#endif							/* OUTBOX_TRIGGER_REFUSAL_H */
