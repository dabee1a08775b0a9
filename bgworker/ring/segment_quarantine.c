/*
 * segment_quarantine.c
 *		Segments on which work has failed, and which are left alone for a while.
 *
 * Called by cleanup_round.c, rotation.c, emptying.c, compaction_step.c,
 * compaction_choice.c, compaction_merge.c and filter_builder.c. A page that
 * cannot be read, or a full disk, raises an ERROR there. It must not end the
 * dispatcher, whose successor would fail on the same segment: messages are sent
 * even if records cannot be maintained.
 *
 * The list is in the memory of this process. A new process finds out for
 * itself.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "bgworker/process/transaction.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/clock.h"
#include "src/problem.h"

/*
 * After the first failure a segment is left alone for this long, then for twice
 * that ...
 */
#define FIRST_RETRY_MS	(10 * 1000)
#define LAST_RETRY_MS	(600 * 1000)

#define TEXT_BYTES		256

typedef struct Quarantine
{
	int			retry_ms;		/* 0 = nothing is wrong with it */
	TimestampTz until;
	uint64		tag;			/* ring.tx when it failed; 0 = not noted yet */
	bool		rested;			/* its time was over when a round began that
								 * tries all, and it has not failed since */
} Quarantine;

static Quarantine segments[RING_KINDS][MAX_SEGMENTS];
static struct
{
	RingKind	kind;
	int			segment;
}			touched;			/* the segment that is being worked on */

static bool is_well(Quarantine *quarantine, const Segment *segment, bool all_is_tried);
static void report(const char *error);
static bool has_no_failures(void);

/* Check whether a segment is to be left alone for now. */
bool
segment_quarantine_holds(RingKind kind, int segment)
{
	return segments[kind][segment].retry_ms != 0 && clock_now() < segments[kind][segment].until;
}

/* Check whether the last work on a segment has failed. */
bool
segment_quarantine_has_failed(RingKind kind, int segment)
{
	return segments[kind][segment].retry_ms != 0;
}

/*
 * Rolls back after an ERROR that was caught while working on this segment,
 * reports it, and has the segment left alone from now on. `message` has a %s for
 * the ring, a %d for the segment, and a %s for the text of the ERROR.
 */
void
segment_quarantine_catch(RingKind kind, int segment, const char *message)
{
	Quarantine *quarantine = &segments[kind][segment];
	ErrorData  *error;
	char		text[TEXT_BYTES];

	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	FlushErrorState();
	transaction_abort();

	quarantine->retry_ms = Min(Max(quarantine->retry_ms * 2, FIRST_RETRY_MS), LAST_RETRY_MS);
	quarantine->until = TimestampTzPlusMilliseconds(clock_now(), quarantine->retry_ms);
	quarantine->tag = 0;
	quarantine->rested = false;
	snprintf(text, sizeof(text), message, ring_name(kind), segment, error->message);
	text[pg_mbcliplen(text, strlen(text), sizeof(text) - 1)] = '\0';
	FreeErrorData(error);
	report(text);
}

/* Notes that this segment is being worked on from now on. */
void
segment_quarantine_touch(RingKind kind, int segment)
{
	touched.kind = kind;
	touched.segment = segment;
}

/* Does segment_quarantine_catch() for the segment that was touched last. */
void
segment_quarantine_catch_touched(const char *message)
{
	segment_quarantine_catch(touched.kind, touched.segment, message);
}

/* Notes that work on a segment has succeeded. */
void
segment_quarantine_release(RingKind kind, int segment)
{
	if (segments[kind][segment].retry_ms == 0)
		return;
	segments[kind][segment].retry_ms = 0;
	if (has_no_failures())
		report(NULL);
}

/*
 * Releases the segments of a ring with which nothing is wrong any more. Called when a round
 * begins, which tries all that there is to do, or some of it.
 */
void
segment_quarantine_review(RingKind kind, const Ring *ring, bool all_is_tried)
{
	for (int n = 0; n < ring->nsegments; n++)
	{
		if (segments[kind][n].retry_ms != 0 && is_well(&segments[kind][n], &ring->segments[n], all_is_tried))
			segment_quarantine_release(kind, n);
	}
}

/*
 * Check whether nothing is wrong any more with a segment that has failed. It has come into
 * another state; or it is one that has nothing to be worked on, and what it was needed for
 * has not failed in a round that began when its time was over: so that has succeeded, or is
 * not needed any more.
 */
static bool
is_well(Quarantine *quarantine, const Segment *segment, bool all_is_tried)
{
	uint64		tag = U64FromFullTransactionId(segment->tx);

	if (quarantine->tag == 0)
		quarantine->tag = tag;
	if (quarantine->tag != tag || (quarantine->rested && all_is_tried))
		return true;
	if (all_is_tried && (segment->state == SEGMENT_EMPTY || segment->state == SEGMENT_CURRENT))
		quarantine->rested = clock_now() >= quarantine->until;
	return false;
}

/* Check whether the last work on each segment has succeeded. */
static bool
has_no_failures(void)
{
	for (int kind = 0; kind < RING_KINDS; kind++)
	{
		for (int n = 0; n < MAX_SEGMENTS; n++)
		{
			if (segments[kind][n].retry_ms != 0)
				return false;
		}
	}
	return true;
}

/*
 * Reports the failure in outbox.problems, and in the server log if it is a new
 * one; NULL = there is no failure.
 */
static void
report(const char *error)
{
	static char told[TEXT_BYTES];

	if (strcmp(told, error ? error : "") == 0)
		return;
	strlcpy(told, error ? error : "", sizeof(told));
	if (error == NULL)
	{
		problem_clear(PROBLEM_SEGMENT);
		ereport(LOG, (errmsg("outbox: work on segments succeeds again")));
		return;
	}
	problem_set(PROBLEM_SEGMENT, "Work on a segment has failed, so the segment is left alone for a while: %s. Make room on the disk, or find out what damages files.", error);
	ereport(LOG, (errmsg("outbox: %s", error),
				  errdetail("The segment is left alone for a while.  Messages are sent.")));
}
