/*
 * process.h
 *		What our background processes have in common: start, settings, waiting.
 */
#ifndef OUTBOX_PROCESS_H
#define OUTBOX_PROCESS_H

#include "postmaster/bgworker.h"

#include "src/lock_class.h"
#include "src/wait_event.h"

extern BackgroundWorkerHandle *process_start(const char *kind, const char *function, Oid database, uint32 turn);
extern void process_begin(void);
extern void process_connect(Oid database);
extern bool process_was_told_to_end(void);
extern void process_take_role(LockClass role);
extern void process_release_locks(void);
extern bool process_reload_settings(void);
extern void process_pause(long ms, OutboxWait wait);
extern void process_sleep(long ms, OutboxWait wait);

#endif							/* OUTBOX_PROCESS_H */
