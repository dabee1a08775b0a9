/*
 * due_messages.h
 *		Deferred messages whose time has come.
 */
#ifndef OUTBOX_DUE_MESSAGES_H
#define OUTBOX_DUE_MESSAGES_H

extern bool due_messages_return(void);
extern void due_messages_end_probes(void);
extern long due_messages_ms_until(void);

#endif							/* OUTBOX_DUE_MESSAGES_H */
