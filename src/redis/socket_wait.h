/*
 * socket_wait.h
 *		Waits for a socket and the latch together, until a deadline.
 */
#ifndef OUTBOX_SOCKET_WAIT_H
#define OUTBOX_SOCKET_WAIT_H

#include "datatype/timestamp.h"

/*
 * Called at least every 100 ms while a process waits. It handles interrupts and
 * everything else that the process must do meanwhile, and need not return.
 */
typedef void (*LinkAttend) (void);

extern int	socket_wait(int socket, int events, TimestampTz deadline, LinkAttend attend, uint32 wait_event);

#endif							/* OUTBOX_SOCKET_WAIT_H */
