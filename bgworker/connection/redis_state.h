/*
 * redis_state.h
 *		Whether Redis can be used, and when it is tried again.
 */
#ifndef OUTBOX_REDIS_STATE_H
#define OUTBOX_REDIS_STATE_H

#include "bgworker/window/position.h"

extern bool redis_state_connect(Position *position);
extern bool redis_state_has_new_url(void);
extern void redis_state_note_settings(void);
extern void redis_state_note_off(void);
extern void redis_state_note_failure(void);
extern void redis_state_note_success(void);
extern bool redis_state_lease_is_due(void);
extern void redis_state_renew_lease(void);
extern void redis_state_try_blocked(void);
extern bool redis_state_may_send(void);
extern long redis_state_ms_until_due(void);

#endif							/* OUTBOX_REDIS_STATE_H */
