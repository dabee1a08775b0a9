/*
 * compaction_choice.c
 *		Chooses segments of records, and of the history, to be merged.
 *
 * Called by compaction_step.c when no merge is under way; compaction_merge.c does
 * what is chosen here. What is remembered must stay small on disk and in few
 * segments: a segment of records takes more than a hundred bytes per id, a segment
 * of the history sixteen; and each segment is one more that a lookup must exclude.
 *
 * It must never take a segment whose messages are not all published, because a
 * compacted key does not say which transaction it is of.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "bgworker/ring/compaction_choice.h"
#include "bgworker/ring/segment_quarantine.h"
#include "src/record/endpoint.h"

/* This many segments of a level are merged into one of the next. */
#define FAN_IN			6

/* If no more than this many segments of the history are empty, fewer segments are merged. */
#define EMPTY_RESERVE	2

/*
 * By being in one segment with younger ones, a record is remembered at most
 * this fraction of the longest retention longer; twice that when such segments
 * are merged once more.
 */
#define SPAN_SHARES		4

static int	next_level(const Ring *history, int level);
static bool choose_level(const Ring *ring, int level, int enough, int64 span, Merge *merge);
static int	candidates(RingKind kind, const Ring *ring, int level, int *segments);
static int	compare_published(const void *a, const void *b, void *arg);
static int	enough_to_merge(const Ring *ring, int reserve);
static int	choose_target(const Ring *history);

/* Chooses what to merge next: the lowest level that has enough segments. */
bool
compaction_choice_make(const Rings *rings, Merge *merge)
{
	const Ring *history = &rings->ring[RING_HISTORY];
	int64		span = endpoint_longest_retention() / SPAN_SHARES;

	memset(merge, 0, sizeof(*merge));
	merge->target = choose_target(history);
	if (merge->target < 0)
		return false;

	merge->kind = RING_RECORD;
	if (choose_level(&rings->ring[RING_RECORD], 0, enough_to_merge(&rings->ring[RING_RECORD], 0), span, merge))
		return true;

	merge->kind = RING_HISTORY;
	for (int level = next_level(history, 0); level > 0; level = next_level(history, level))
	{
		if (choose_level(history, level, enough_to_merge(history, EMPTY_RESERVE), span, merge))
			return true;
	}
	return false;
}

/* Returns the least level above another one that a segment of the history has; 0 if there is none. */
static int
next_level(const Ring *history, int level)
{
	int			next = 0;

	for (int n = 0; n < history->nsegments; n++)
	{
		if (history->segments[n].level > level && (next == 0 || history->segments[n].level < next))
			next = history->segments[n].level;
	}
	return next;
}

/*
 * Chooses the oldest segments of a level: enough of them, or fewer if the one
 * that follows was published too long after the first.
 */
static bool
choose_level(const Ring *ring, int level, int enough, int64 span, Merge *merge)
{
	int			segments[MAX_SEGMENTS];
	int			n = candidates(merge->kind, ring, level, segments);

	for (int first = 0; first < n; first++)
	{
		TimestampTz until = ring->segments[segments[first]].published_at + span;
		int			end = first;

		while (end < n && end - first < FAN_IN && ring->segments[segments[end]].published_at <= until)
			end++;
		if (end == n && end - first < enough)
			return false;		/* more may follow in time */
		if (end - first >= 2)
		{
			merge->n = end - first;
			memcpy(merge->sources, segments + first, merge->n * sizeof(int));
			return true;
		}
	}
	return false;
}

/* Finds the segments that could be merged, the oldest first; returns how many. */
static int
candidates(RingKind kind, const Ring *ring, int level, int *segments)
{
	int			n = 0;

	for (int i = 0; i < ring->nsegments; i++)
	{
		const Segment *segment = &ring->segments[i];

		if (segment->state == SEGMENT_QUIET && segment->published_at != 0 && segment->level == level &&
			!segment_quarantine_holds(kind, i) && segment_try_lock(kind, i))
			segments[n++] = i;
	}
	qsort_arg(segments, n, sizeof(int), compare_published, (void *) ring);
	return n;
}

/* Orders by when they were published; for qsort_arg(). */
static int
compare_published(const void *a, const void *b, void *arg)
{
	const Ring *ring = arg;
	TimestampTz at_a = ring->segments[*(const int *) a].published_at;
	TimestampTz at_b = ring->segments[*(const int *) b].published_at;

	return at_a < at_b ? -1 : at_a > at_b;
}

/*
 * Returns how many segments are enough for a merge: fewer if no more than
 * `reserve` are empty.
 */
static int
enough_to_merge(const Ring *ring, int reserve)
{
	int			nempty = 0;

	for (int n = 0; n < ring->nsegments; n++)
		nempty += ring->segments[n].state == SEGMENT_EMPTY;
	return nempty > reserve ? FAN_IN : 2;
}

/*
 * Returns an empty segment of the history, if possible one on which no work has failed; -1
 * if there is none. While an empty one is left alone, none is taken: what fails at one
 * target, as when the disk is full, usually fails at all of them.
 */
static int
choose_target(const Ring *history)
{
	int			target = -1;

	for (int n = 0; n < history->nsegments; n++)
	{
		if (history->segments[n].state != SEGMENT_EMPTY)
			continue;
		if (segment_quarantine_holds(RING_HISTORY, n))
			return -1;
		segment_quarantine_touch(RING_HISTORY, n);
		if ((target < 0 || (segment_quarantine_has_failed(RING_HISTORY, target) && !segment_quarantine_has_failed(RING_HISTORY, n))) &&
			segment_try_lock(RING_HISTORY, n) && segment_blocks(RING_HISTORY, n) == 0)
			target = n;
	}
	return target;
}
