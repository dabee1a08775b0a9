/*
 * reload_pace.h
 *		When what is deferred is read again.
 */
#ifndef OUTBOX_RELOAD_PACE_H
#define OUTBOX_RELOAD_PACE_H

extern void reload_pace_begin(void);
extern void reload_pace_end(void);
extern void reload_pace_ask(void);
extern void reload_pace_ask_at_once(void);
extern bool reload_pace_is_asked(void);
extern bool reload_pace_comes_first(void);
extern long reload_pace_rest_ms(void);
extern long reload_pace_ms_until(void);

#endif							/* OUTBOX_RELOAD_PACE_H */
