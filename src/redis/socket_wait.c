/*
 * socket_wait.c
 *		Waits for a socket and the latch together, until a deadline.
 *
 * Called by channel.c and postgres_link.c. Most answers come soon, so the socket alone is
 * waited for at first, by poll(): that is one system call, where a WaitEventSet takes five,
 * and another file descriptor for as long as it is kept. The latch is heeded behind that,
 * unless no descriptor is free: then it is looked at every SLICE_MS, and what is connected
 * can still be used.
 *
 * Waiting resets the latch: callers must look for work again before they sleep on it.
 */
#include "postgres.h"

#include <poll.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "src/clock.h"
#include "src/redis/socket_wait.h"

#define SOON_MS		5			/* the socket alone is waited for */
#define SLICE_MS	100			/* between two calls of `attend` */

static int	wait_slice(int socket, int events, long ms, uint32 wait_event);
static int	poll_socket(int socket, int events, long ms, uint32 wait_event);

/*
 * Waits for WL_SOCKET_READABLE, WL_SOCKET_WRITEABLE, or either, of a socket. Returns what
 * occurred, 0 if the deadline by clock_now() has passed. Calls `attend` meanwhile, which
 * may raise an error.
 */
int
socket_wait(int socket, int events, TimestampTz deadline, LinkAttend attend, uint32 wait_event)
{
	long		left = TimestampDifferenceMilliseconds(clock_now(), deadline);
	int			ready = poll_socket(socket, events, Min(left, SOON_MS), wait_event);

	while (ready == 0)
	{
		left = TimestampDifferenceMilliseconds(clock_now(), deadline);
		if (left > 0)
			ready = wait_slice(socket, events, Min(left, SLICE_MS), wait_event);
		if (ready & WL_LATCH_SET)
			ResetLatch(MyLatch);
		if ((ready & WL_LATCH_SET) || (ready & events) == 0)
			attend();

		/*
		 * A latch that is set repeatedly must not hide the socket, and
		 * attending may take long.
		 */
		ready &= events;
		if (ready == 0)
			ready = poll_socket(socket, events, 0, wait_event);
		if (left <= 0)
			break;
	}
	return ready;
}

/* Waits for the socket and, if that is possible, for the latch; returns what occurred. */
static int
wait_slice(int socket, int events, long ms, uint32 wait_event)
{
	/*
	 * The set that is made to wait for both takes a descriptor, and an error
	 * if there is none.
	 */
	if (!AcquireExternalFD())
		return poll_socket(socket, events, ms, wait_event) | (MyLatch->is_set ? WL_LATCH_SET : 0);
	ReleaseExternalFD();
	return WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | events, socket, ms, wait_event);
}

/* Waits for the socket; returns what occurred, 0 if nothing did until a signal came, the latch had been set, or the time was up. */
static int
poll_socket(int socket, int events, long ms, uint32 wait_event)
{
	struct pollfd waited = {.fd = socket};
	int			n;
	int			ready = 0;

	if (IsUnderPostmaster && !PostmasterIsAlive())
		proc_exit(1);
	if (events & WL_SOCKET_READABLE)
		waited.events |= POLLIN;
	if (events & WL_SOCKET_WRITEABLE)
		waited.events |= POLLOUT;
	pgstat_report_wait_start(wait_event);
	n = poll(&waited, 1, MyLatch->is_set ? 0 : (int) ms);
	pgstat_report_wait_end();
	if (n < 0 && errno != EINTR)
		elog(ERROR, "poll() failed: %m");

	/*
	 * Of an error, or the end of the connection, the next call on the socket
	 * tells.
	 */
	if (n > 0 && (waited.revents & ~POLLOUT))
		ready |= events & WL_SOCKET_READABLE;
	if (n > 0 && (waited.revents & ~POLLIN))
		ready |= events & WL_SOCKET_WRITEABLE;
	return ready;
}
