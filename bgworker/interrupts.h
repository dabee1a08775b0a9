/*
 * interrupts.h
 *		What other processes ask of the dispatcher.
 */
#ifndef OUTBOX_INTERRUPTS_H
#define OUTBOX_INTERRUPTS_H

#include "bgworker/window/position.h"

extern void interrupts_init(Position *ours);
extern void interrupts_attend(void);
extern bool interrupts_attend_to_standby(void);
extern void interrupts_attend_to_refusal(void);
extern bool interrupts_reload(void);
extern bool interrupts_reload_is_due(void);
extern bool interrupts_have_new_settings(void);
extern bool interrupts_take_new_settings(void);
extern long interrupts_ms_until_look(void);

#endif							/* OUTBOX_INTERRUPTS_H */
