/*
 * position.h
 *		How far windows have been opened and published.
 */
#ifndef OUTBOX_POSITION_H
#define OUTBOX_POSITION_H

#include "bgworker/window/run.h"
#include "src/log/window_row.h"

/* What is found while a window cannot be sent, and is logged once. */
typedef enum News
{
	NEWS_FENCE = 1 << 0,		/* the fence is missing or cannot be used */
	NEWS_MISSING = 1 << 1,		/* windows before the next one are missing */
	NEWS_EXPIRED = 1 << 2		/* so are messages of the next one */
} News;

typedef struct Position
{
	Window		opened;			/* the newest window */
	SnapshotValue *looked;		/* sees everything committed before the last
								 * look */
	int64		published;		/* newest window known to be in Redis */
	int64		sent;			/* newest window sent since the fence was
								 * read; less than published while messages
								 * that Redis lost are sent again */
	int64		sent_before;	/* newest window that was sent before it was
								 * last read */
	int64		left_out;		/* oldest window of which messages were left
								 * out, which is not published: they cannot be
								 * sent for now; 0 = none */
	int64		propagated;		/* newest window whose receipts are known to
								 * have been propagated; never greater than
								 * published */
	int64		targets;		/* hash of that to which they were, and of
								 * which it is known what it lacks */
	int64		marked;			/* no window after this one holds a receipt */
	WindowPlace touched;		/* the last message that may have been sent or
								 * deferred before */
	int64		first_window;	/* a replay never begins before the end of
								 * this one */
	int64		resume_after;	/* last message of window sent + 1 that Redis
								 * has; 0 = none */
	TimestampTz opened_at;		/* when the newest window was opened, by
								 * clock_now() */
	int			told;			/* News that have been logged */
	Run			run;			/* the windows that are sent next */
} Position;

extern void position_load(Position *position, int64 first_window);
extern void position_note_opened(Position *position, const Window *window);
extern void position_note_looked(Position *position, const SnapshotValue *snapshot);
extern void position_note_published(Position *position);
extern void position_note_all_published(Position *position);
extern void position_leave_out(Position *position, int64 window);
extern bool position_advance(Position *position, int64 row);
extern void position_propagate(Position *position, int64 upto);
extern void position_expect_receipts_after(Position *position, int64 number);
extern void position_end_run(Position *position);
extern bool position_is_news(Position *position, News news);
extern bool position_has_published(const Position *position, FullTransactionId tx);

/* Check whether all windows have been sent, but for what was left out. */
static inline bool
position_is_caught_up(const Position *position)
{
	return position->sent == position->opened.number;
}

/* Check whether all windows have been sent, and nothing was left out. */
static inline bool
position_has_sent_all(const Position *position)
{
	return position_is_caught_up(position) && position->left_out == 0;
}

/* Check whether windows are read again that were sent before the fence was last read. */
static inline bool
position_goes_over_sent(const Position *position)
{
	return position->sent < position->sent_before;
}

/* Returns the newest window that counts as published when all up to that one is sent. */
static inline int64
position_published(const Position *position, int64 sent)
{
	return position->left_out > 0 ? Min(sent, position->left_out - 1) : sent;
}

/*
 * Check whether publishing has got further than the newest window says, or propagation, or
 * that has gone back: a PostgreSQL store that lacks ids does not tell the next process.
 */
static inline bool
position_has_news(const Position *position)
{
	return position->opened.published < position->published ||
		position->opened.propagated != position->propagated;
}

#endif							/* OUTBOX_POSITION_H */
