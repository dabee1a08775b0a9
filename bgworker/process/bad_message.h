/*
 * bad_message.h
 *		Which errors are the fault of a message.
 */
#ifndef OUTBOX_BAD_MESSAGE_H
#define OUTBOX_BAD_MESSAGE_H

extern void bad_message_abort(char *error, size_t size);

#endif							/* OUTBOX_BAD_MESSAGE_H */
