/*
 * socket_wait.c
 *		Waits for a socket and the latch together, until a deadline.
 *
 * Called by channel_dial.c, redis_link.c and postgres_link.c. Waiting resets the
 * latch: callers must look for work again before they sleep on it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "src/clock.h"
#include "src/redis/socket_wait.h"

#define SLICE_MS	100			/* between two calls of `attend` */

/*
 * Waits for events of a socket. Returns those that occurred, 0 if the deadline
 * by clock_now() has passed. Calls `attend` meanwhile, which may raise an
 * error.
 */
int
socket_wait(int socket, int events, TimestampTz deadline, LinkAttend attend, uint32 wait_event)
{
	for (;;)
	{
		long		left = TimestampDifferenceMilliseconds(clock_now(), deadline);
		int			ready = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | events,
											  socket, Min(left, SLICE_MS), wait_event);

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
