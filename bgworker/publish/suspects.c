/*
 * suspects.c
 *		Messages that may break the link to Redis.
 *
 * Called by publisher.c. Such a message (too large for a limit of the server, or
 * of a proxy before it) gets no verdict. When the link has failed again and
 * again without any progress, what was under way then is suspect and is sent
 * one by one; the one that it fails on even so is the culprit.
 *
 * It must never count a failure whose cause is known: no message is to blame
 * for that.
 */
#include "postgres.h"

#include "bgworker/publish/suspects.h"

/* Failures of the link in a row without any progress, until ... */
#define STRIKES_TO_SUSPECT	3	/* what was under way is sent one by one */
#define STRIKES_TO_DEFER	3	/* the one that was sent alone is deferred */

/* Messages of a window that the link may have failed on. */
typedef struct Suspects
{
	int64		window;			/* 0 = there are none */
	int64		upto;			/* ids up to this one */
	int64		alone;			/* the one that it failed on when that was
								 * sent alone; 0 = none yet */
	int			strikes;		/* how often in a row it did */
} Suspects;

static Suspects suspects;
static int	strikes;			/* failures of the link since the last
								 * progress */

/* Check whether a message may be what the link failed on. */
bool
suspects_include(int64 window, int64 id)
{
	return suspects.window == window && id <= suspects.upto;
}

/*
 * The link has failed, and nothing tells why; `tried` is the last message
 * that was sent, 0 = none.
 */
void
suspects_note_strike(int64 window, int64 tried)
{
	strikes++;
	if (tried == 0)
		return;
	if (suspects_include(window, tried))
	{
		suspects.strikes = tried == suspects.alone ? suspects.strikes + 1 : 1;
		suspects.alone = tried;
	}
	else if (strikes >= STRIKES_TO_SUSPECT)
		suspects = (Suspects) {.window = window, .upto = tried};
}

/*
 * There was a verdict. Whether the rest of what is suspect passes is to be
 * seen yet.
 */
void
suspects_note_progress(void)
{
	strikes = 0;
	suspects.strikes = 0;
}

/* Check whether the link has failed since something went through. */
bool
suspects_have_strikes(void)
{
	return strikes > 0;
}

/*
 * The message of a window that the link has failed on again and again when it
 * was under way alone, although the server let us in; 0 = there is none.
 */
int64
suspects_culprit(int64 window)
{
	return suspects.window == window && suspects.strikes >= STRIKES_TO_DEFER ? suspects.alone : 0;
}

/* The culprit is found: those behind it are no longer suspect. */
void
suspects_clear(void)
{
	memset(&suspects, 0, sizeof(suspects));
	strikes = 0;
}

/* All of a window has passed. */
void
suspects_note_window_sent(int64 window)
{
	if (suspects.window == window)
		suspects.window = 0;
}
