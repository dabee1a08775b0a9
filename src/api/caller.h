/*
 * caller.h
 *		Checks whether a call may be made.
 */
#ifndef OUTBOX_CALLER_H
#define OUTBOX_CALLER_H

#include "src/shared.h"

extern void caller_check_can_write(const char *function);
extern void caller_check_can_store(const char *function);
extern DatabaseShared *caller_require_shared(void);

#endif							/* OUTBOX_CALLER_H */
