/*
 * deferral.h
 *		Messages that cannot be sent now, and those behind them.
 */
#ifndef OUTBOX_DEFERRAL_H
#define OUTBOX_DEFERRAL_H

#include "bgworker/defer/blocked_destinations.h"
#include "src/log/deferred.h"
#include "src/log/log.h"

extern void deferral_load(void);
extern bool deferral_reload(void);
extern void deferral_read_head(Blocked *blocked);
extern bool deferral_try_defer(const Message *message, int segment);
extern void deferral_defer_refused(const Message *message, int segment, const char *error);
extern void deferral_defer_unreadable(const Message *message, int segment, const char *error);
extern void deferral_put_off(int64 id, const char *error);

#endif							/* OUTBOX_DEFERRAL_H */
