/*
 * message_id.h
 *		The numbers of messages, in the order of the calls.
 */
#ifndef OUTBOX_MESSAGE_ID_H
#define OUTBOX_MESSAGE_ID_H

extern int64 message_id_next(void);
extern void message_id_note_used(int64 id);
extern int64 message_id_last(void);

#endif							/* OUTBOX_MESSAGE_ID_H */
