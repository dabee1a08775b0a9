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

/* Messages that may have made the link fail. */
typedef struct Suspects
{
	WindowPlace upto;			/* all up to this one; .window = 0: there are
								 * no suspects */
	WindowPlace alone;			/* the one on which the link failed when it
								 * was sent alone; .window = 0: none yet */
	int			strikes;		/* how often in a row it failed on that one */
} Suspects;

static Suspects suspects;
static int	strikes;			/* failures of the link since the last
								 * progress */

/* Check whether a message may have made the link fail. */
bool
suspects_include(WindowPlace message)
{
	return !place_precedes(suspects.upto, message);
}

/*
 * Notes that the link has failed for an unknown reason; `tried` is the last
 * message that was sent, its window is 0 if none was.
 */
void
suspects_note_strike(WindowPlace tried)
{
	strikes++;
	if (tried.window == 0)
		return;
	if (suspects_include(tried))
	{
		bool		again = tried.window == suspects.alone.window && tried.id == suspects.alone.id;

		suspects.strikes = again ? suspects.strikes + 1 : 1;
		suspects.alone = tried;
	}
	else if (strikes >= STRIKES_TO_SUSPECT)
		suspects = (Suspects) {.upto = tried};
}

/*
 * Notes that there were verdicts on a page. The remaining suspects stay suspects until
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
 * Check whether there is a message on which the link failed repeatedly when it
 * was sent alone, although the server accepted the connection.
 */
bool
suspects_find_culprit(WindowPlace *culprit)
{
	*culprit = suspects.alone;
	return suspects.strikes >= STRIKES_TO_DEFER;
}

/* Forgets all suspects: the culprit has been found, those behind it are innocent. */
void
suspects_clear(void)
{
	memset(&suspects, 0, sizeof(suspects));
	strikes = 0;
}

/* Notes that all messages of all windows up to this one were sent. */
void
suspects_note_sent(int64 window)
{
	if (suspects.upto.window <= window)
		suspects = (Suspects) {0};
}
