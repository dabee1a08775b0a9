/*
 * log_id.h
 *		The numbers of messages, in the order of the calls.
 */
#ifndef OUTBOX_LOG_ID_H
#define OUTBOX_LOG_ID_H

extern int64 log_id_next(void);
extern void log_id_note_used(int64 id);
extern int64 log_id_last(void);

#endif							/* OUTBOX_LOG_ID_H */
