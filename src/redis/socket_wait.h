/*
 * socket_wait.h
 *		Waiting for a socket without neglecting anything else.
 */
#ifndef OUTBOX_SOCKET_WAIT_H
#define OUTBOX_SOCKET_WAIT_H

#include "datatype/timestamp.h"

/*
 * Called at least every 100 ms while a process waits. It handles interrupts
 * and whatever else the process must attend to, and need not return.
 */
typedef void (*LinkAttend) (void);

extern int	socket_wait(int socket, int events, TimestampTz deadline, LinkAttend attend, uint32 wait_event);

#endif							/* OUTBOX_SOCKET_WAIT_H */
