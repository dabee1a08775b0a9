/*
 * send_buffer.h
 *		Bytes on their way to a socket.
 */
#ifndef OUTBOX_SEND_BUFFER_H
#define OUTBOX_SEND_BUFFER_H

#include "lib/stringinfo.h"

extern size_t send_buffer_unsent(const StringInfoData *buffer);
extern void send_buffer_move(StringInfo to, StringInfo from);
extern void send_buffer_empty(StringInfo buffer);
extern void send_buffer_shrink(StringInfo buffer, int kept);

#endif							/* OUTBOX_SEND_BUFFER_H */
