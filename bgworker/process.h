/*
 * process.h
 *		What the background processes of a database have in common.
 */
#ifndef OUTBOX_PROCESS_H
#define OUTBOX_PROCESS_H

#include "src/lock_class.h"
#include "src/wait_event.h"

extern void process_connect(Oid database);
extern void process_take_role(LockClass role);
extern bool process_reload_settings(void);
extern void process_pause(long ms, OutboxWait wait);
extern void process_sleep(long ms, OutboxWait wait);

#endif							/* OUTBOX_PROCESS_H */
