/*
 * marking.h
 *		Has the records in tables of users' own marked as dispatched.
 */
#ifndef OUTBOX_MARKING_H
#define OUTBOX_MARKING_H

extern void marking_init(void);
extern void marking_begin(void);
extern void marking_add(const char *endpoint, const char *msgid);
extern void marking_run(void);
extern void marking_try_again(void);
extern bool marking_has_room(void);
extern bool marking_is_complete(void);
extern long marking_ms_until_due(void);

#endif							/* OUTBOX_MARKING_H */
