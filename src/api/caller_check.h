/*
 * caller_check.h
 *		Checks whether a call may be made.
 */
#ifndef OUTBOX_CALLER_CHECK_H
#define OUTBOX_CALLER_CHECK_H

#include "src/shared.h"

extern void caller_check_can_write(const char *function);
extern void caller_check_can_store(const char *function);
extern DatabaseShared *caller_check_preloaded(void);

#endif							/* OUTBOX_CALLER_CHECK_H */
