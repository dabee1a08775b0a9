/*
 * suspects.c
 *		Messages that may break the link to Redis.
 *
 * Called by publisher.c. Such a message (too large for a limit of the server,
 * or of a proxy in front of it) gets no verdict. When the link has failed
 * several times without any progress, the messages that were under way are
 * suspects and are sent one by one. If the link keeps failing on one of them,
 * that one is the culprit.
 *
 * It must never count a failure whose cause is known, because no message caused
 * it.
 */
#include "postgres.h"

#include "bgworker/publish/suspects.h"

/* Consecutive failures of the link without any progress, until ... */
#define STRIKES_TO_SUSPECT	3	/* the messages under way are sent one by one */
#define STRIKES_TO_DEFER	3	/* the message that was sent alone is deferred */

/* Messages of a window that may have made the link fail. */
typedef struct Suspects
{
	int64		window;			/* 0 = there are no suspects */
	int64		upto;			/* ids up to this one */
	int64		alone;			/* the one on which the link failed when it
								 * was sent alone; 0 = none yet */
	int			strikes;		/* how often in a row it failed on that one */
} Suspects;

static Suspects suspects;
static int	strikes;			/* failures of the link since the last
								 * progress */

/* Check whether a message may have made the link fail. */
bool
suspects_include(int64 window, int64 id)
{
	return suspects.window == window && id <= suspects.upto;
}

/*
 * Notes that the link has failed for an unknown reason; `tried` is the last
 * message that was sent, 0 = none.
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
 * Notes that there was a verdict. The remaining suspects stay suspects until
 * they have been sent.
 */
void
suspects_note_progress(void)
{
	strikes = 0;
	suspects.strikes = 0;
}

/* Check whether the link has failed since the last progress. */
bool
suspects_have_strikes(void)
{
	return strikes > 0;
}

/*
 * Returns the message of a window on which the link failed repeatedly when it
 * was sent alone, although the server accepted the connection; 0 if there is
 * none.
 */
int64
suspects_culprit(int64 window)
{
	return suspects.window == window && suspects.strikes >= STRIKES_TO_DEFER ? suspects.alone : 0;
}

/* Forgets all suspects: the culprit has been found, those behind it are innocent. */
void
suspects_clear(void)
{
	memset(&suspects, 0, sizeof(suspects));
	strikes = 0;
}

/* Notes that all messages of a window were sent. */
void
suspects_note_window_sent(int64 window)
{
	if (suspects.window == window)
		suspects.window = 0;
}
