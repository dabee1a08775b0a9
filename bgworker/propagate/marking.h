/*
 * marking.h
 *		Marks the records in custom record tables as dispatched.
 */
#ifndef OUTBOX_MARKING_H
#define OUTBOX_MARKING_H

extern void marking_init(void);
extern void marking_begin_again(Oid table);
extern void marking_list_again(void);
extern bool marking_run(int64 marked, int64 to_mark);
extern int64 marking_least(void);
extern long marking_ms_until_due(void);

#endif							/* OUTBOX_MARKING_H */
