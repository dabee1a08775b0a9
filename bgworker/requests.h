/*
 * requests.h
 *		What other processes ask of the dispatcher.
 */
#ifndef OUTBOX_REQUESTS_H
#define OUTBOX_REQUESTS_H

#include "bgworker/window/position.h"

extern void requests_init(Position *ours);
extern void requests_attend(void);
extern bool requests_attend_to_standby(void);
extern void requests_attend_to_refusal(void);
extern void requests_reload(void);
extern bool requests_reload_is_due(void);
extern bool requests_have_new_settings(void);
extern bool requests_take_new_settings(void);
extern long requests_ms_until_look(void);

#endif							/* OUTBOX_REQUESTS_H */
