/*
 * wait_event.h
 *		What our processes wait for, as pg_stat_activity shows it.
 */
#ifndef OUTBOX_WAIT_EVENT_H
#define OUTBOX_WAIT_EVENT_H

/* All waits and their names. To add one, add its line. */
#define OUTBOX_WAIT_LIST(W) \
	W(BOOKKEEPER, "OutboxBookkeeper") \
	W(DISPATCHER, "OutboxDispatcher") \
	W(LAUNCHER, "OutboxLauncher") \
	W(PROGRESS, "OutboxProgress") \
	W(REDIS, "OutboxRedis") \
	W(RESOLVER, "OutboxResolver") \
	W(STORE, "OutboxStore")

typedef enum OutboxWait
{
#define OUTBOX_WAIT_ENUM(wait, name) OUTBOX_WAIT_##wait,
	OUTBOX_WAIT_LIST(OUTBOX_WAIT_ENUM)
#undef OUTBOX_WAIT_ENUM
	OUTBOX_WAITS
} OutboxWait;

extern uint32 wait_event_of(OutboxWait wait);

#endif							/* OUTBOX_WAIT_EVENT_H */
