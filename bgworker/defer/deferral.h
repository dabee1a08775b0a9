/*
 * deferral.h
 *		Messages that cannot be sent now, and those behind them.
 */
#ifndef OUTBOX_DEFERRAL_H
#define OUTBOX_DEFERRAL_H

#include "src/log/log.h"

extern void deferral_load(void);
extern bool deferral_reload(void);
extern bool deferral_leaves_out(const Message *message);
extern bool deferral_keeps_back(const Message *message, int segment);
extern void deferral_refused(const Message *message, int segment, const char *error);
extern void deferral_unreadable(const Message *message, int segment, const char *error);
extern bool deferral_return_due(void);
extern void deferral_settle(void);
extern void deferral_window_published(void);
extern long deferral_ms_until_due(void);
extern void deferral_forget_segment(int segment);

#endif							/* OUTBOX_DEFERRAL_H */
