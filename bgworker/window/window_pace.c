/*
 * window_pace.c
 *		How long the dispatcher pauses between two windows.
 *
 * Called by the dispatcher. A window costs the same whether it has one message
 * or a hundred: a synchronous commit, a run of the script, some switches between
 * processes. Where callers and Redis share the processors with the dispatcher,
 * fewer and larger windows leave more of them to the callers. So the pause
 * grows up to outbox.max_dispatch_delay while the processors are busy. It is
 * short while they are not, and while there are few messages: then a pause would
 * only make these wait.
 *
 * The processors are busy if this process has to wait for one: the kernel says
 * how long it ran, and how long it waited although it could have run. Where the
 * kernel does not say (other than Linux) the pause stays short.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"

#include "bgworker/window/window_pace.h"
#include "src/settings.h"

#define LEAST_MS		1		/* without any pause, callers would lose a
								 * fifth of their throughput */
#define FEW_MESSAGES	4		/* with fewer, a window is not worth waiting
								 * for */
#define RECENT_WINDOWS	4

/*
 * The share of waiting in the time that this process could have run. The pause
 * begins to grow at the first value, and is longest at the second. With the
 * processors half busy it is about a quarter, with nothing to spare three.
 */
#define SHARE_IDLE		0.25
#define SHARE_BUSY		0.75

#define TIMES_FILE		"/proc/self/schedstat"

typedef struct Times
{
	uint64		ran;			/* in nanoseconds */
	uint64		waited;
} Times;

static int	times_file = -1;	/* -1 = the kernel does not say */
static Times seen;				/* when the last window was opened that had
								 * more than few messages */
static double share;			/* over the recent windows */

static bool read_times(Times *times);

/* Prepares for use; called once, when the dispatcher starts. */
void
window_pace_init(void)
{
	if (!AcquireExternalFD())
		return;
	times_file = open(TIMES_FILE, O_RDONLY | PG_BINARY);
	if (read_times(&seen))
		return;
	if (times_file >= 0)
		close(times_file);
	times_file = -1;
	ReleaseExternalFD();
}

/* Notes that a window was opened, with so many messages. */
void
window_pace_note(int64 messages)
{
	Times		now;
	uint64		ran;
	uint64		waited;

	if (messages < FEW_MESSAGES)
	{
		share = 0;
		return;
	}
	if (!read_times(&now))
		return;
	ran = now.ran - seen.ran;
	waited = now.waited - seen.waited;
	seen = now;
	if (ran + waited > 0)
		share += ((double) waited / (ran + waited) - share) / RECENT_WINDOWS;
}

/* Returns how long the pause should be now. */
long
window_pace_ms(void)
{
	double		busy = (share - SHARE_IDLE) / (SHARE_BUSY - SHARE_IDLE);

	return LEAST_MS + (long) ((outbox_max_dispatch_delay - LEAST_MS) * Max(0, Min(busy, 1)));
}

/* Reads how long this process ran and waited. Returns false if the kernel does not say. */
static bool
read_times(Times *times)
{
	char		text[64];
	ssize_t		length = times_file < 0 ? 0 : pread(times_file, text, sizeof(text) - 1, 0);

	if (length <= 0)
		return false;
	text[length] = '\0';
	return sscanf(text, UINT64_FORMAT " " UINT64_FORMAT, &times->ran, &times->waited) == 2;
}
