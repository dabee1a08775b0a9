/*
 * wakeup.h
 *		Waking the dispatcher when a transaction has committed.
 */
#ifndef OUTBOX_WAKEUP_H
#define OUTBOX_WAKEUP_H

#include "src/shared.h"

extern void wakeup_init(void);
extern void wakeup_at_commit(void);
extern void wakeup_reload_at_commit(uint32 what);
extern void wakeup_watch_prepared(void);
extern void wakeup_after_prepared(bool has_outbox);
extern void wakeup_launcher_at_commit(void);
extern void wakeup_restart_at_commit(DatabaseShared *shared);

#endif							/* OUTBOX_WAKEUP_H */
