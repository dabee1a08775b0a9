/*
 * due_messages.h
 *		Deferred messages whose time has come.
 */
#ifndef OUTBOX_DUE_MESSAGES_H
#define OUTBOX_DUE_MESSAGES_H

extern void due_messages_init(bool (*is_unreachable) (const char *dest));
extern void due_messages_rejoin_all(void);
extern bool due_messages_return(bool all_is_published);
extern void due_messages_end_probes(void);
extern long due_messages_ms_until(void);
extern bool due_messages_await_turn(void);

#endif							/* OUTBOX_DUE_MESSAGES_H */
