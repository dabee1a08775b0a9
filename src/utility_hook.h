/*
 * utility_hook.h
 *		The hook on utility commands.
 */
#ifndef OUTBOX_UTILITY_HOOK_H
#define OUTBOX_UTILITY_HOOK_H

extern void utility_hook_init(void);

#endif							/* OUTBOX_UTILITY_HOOK_H */
