/*
 * era.h
 *		Eras: by them a fence that names a window we never opened is understood.
 */
#ifndef OUTBOX_ERA_H
#define OUTBOX_ERA_H

extern const char *era_name(void);
extern void era_meet(const char *fence_text);
extern bool era_has_met(void);
extern bool era_knows_all_met(void);
extern void era_begin_if_due(bool another_published, int64 after);
extern bool era_is_unused(void);
extern void era_use(void);
extern int64 era_went_on_after(const char *era, int64 now);

#endif							/* OUTBOX_ERA_H */
