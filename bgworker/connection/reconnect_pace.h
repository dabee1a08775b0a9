/*
 * reconnect_pace.h
 *		How long the dispatcher waits before it connects to Redis again.
 */
#ifndef OUTBOX_RECONNECT_PACE_H
#define OUTBOX_RECONNECT_PACE_H

extern long reconnect_pace_ms_until_try(void);
extern bool reconnect_pace_has_failed(void);
extern void reconnect_pace_note_failure(void);
extern void reconnect_pace_note_given_up(void);
extern void reconnect_pace_note_foreign_lease(void);
extern void reconnect_pace_note_success(void);

#endif							/* OUTBOX_RECONNECT_PACE_H */
