/*
 * return.h
 *		Deferred messages whose time has come.
 */
#ifndef OUTBOX_RETURN_H
#define OUTBOX_RETURN_H

extern bool return_due_messages(void);
extern void return_end_probes(void);
extern long return_ms_until_due(void);

#endif							/* OUTBOX_RETURN_H */
