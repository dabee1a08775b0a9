/*
 * socket_wait.c
 *		Waits for a socket and the latch together, until a deadline.
 *
 * Called by channel.c and postgres_link.c. Waiting resets the
 * latch: callers must look for work again before they sleep on it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/compat.h"
#include "src/redis/socket_wait.h"

#define SLICE_MS	100			/* between two calls of `attend` */

#define SOCKET_AT	0			/* where the socket is in what was prepared */

static int	wait_once(int socket, WaitEventSet *prepared, int events, long ms, uint32 wait_event);

/*
 * Prepares what waiting needs, for many waits: the socket, the latch, and the end of the
 * postmaster. Must be freed before the socket is closed: another one may get its number.
 */
WaitEventSet *
socket_wait_prepare(int socket)
{
	WaitEventSet *prepared = compat_create_wait_event_set(3);

	AddWaitEventToSet(prepared, WL_SOCKET_READABLE, socket, NULL, NULL);
	AddWaitEventToSet(prepared, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	if (IsUnderPostmaster)
		AddWaitEventToSet(prepared, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	return prepared;
}

/*
 * Waits for events of a socket. Returns those that occurred, 0 if the deadline
 * by clock_now() has passed. Calls `attend` meanwhile, which may raise an
 * error. `prepared` is NULL where the owner of the socket does not tell when it closes it.
 */
int
socket_wait(int socket, WaitEventSet *prepared, int events, TimestampTz deadline, LinkAttend attend, uint32 wait_event)
{
	for (;;)
	{
		long		left = TimestampDifferenceMilliseconds(clock_now(), deadline);
		int			ready = wait_once(socket, prepared, events, Min(left, SLICE_MS), wait_event);

		if (ready & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if (ready & (WL_LATCH_SET | WL_TIMEOUT))
			attend();

		/* A latch that is set repeatedly must not hide the socket. */
		if ((ready & events) == 0)
			ready = WaitLatchOrSocket(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | events, socket, 0, wait_event);
		if (ready & events)
			return ready & events;
		if (left <= 0)
			return 0;
	}
}

/* Waits for the socket or the latch; returns what occurred. */
static int
wait_once(int socket, WaitEventSet *prepared, int events, long ms, uint32 wait_event)
{
	WaitEvent	occurred[2];
	int			n;
	int			ready = 0;

	if (prepared == NULL)
		return WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | events, socket, ms, wait_event);
	ModifyWaitEvent(prepared, SOCKET_AT, events, NULL);
	n = WaitEventSetWait(prepared, ms, occurred, lengthof(occurred), wait_event);
	for (int i = 0; i < n; i++)
		ready |= occurred[i].events;
	return n == 0 ? WL_TIMEOUT : ready;
}
