/*
 * clock.h
 *		A clock that nobody sets: for waits and deadlines.
 *
 * Microseconds since some moment, so that the arithmetic for TimestampTz does;
 * 0 is longer ago than any interval that can be set.
 * What is stored or shown is told by the wall clock; what only lasts for a
 * while in this process is measured here, or an hour that the wall clock is
 * set back would be an hour of waiting.
 */
#ifndef OUTBOX_CLOCK_H
#define OUTBOX_CLOCK_H

#include "datatype/timestamp.h"
#include "portability/instr_time.h"
#include "utils/timestamp.h"

static inline TimestampTz
clock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (TimestampTz) INSTR_TIME_GET_MICROSEC(now) + 365 * USECS_PER_DAY;
}

/* How many milliseconds it is until then, at least 0. */
static inline long
clock_ms_until(TimestampTz when)
{
	return TimestampDifferenceMilliseconds(clock_now(), when);
}

/* How many until what is done every `interval` ms is due again. */
static inline long
clock_ms_until_next(TimestampTz last, int interval)
{
	return clock_ms_until(TimestampTzPlusMilliseconds(last, interval));
}

/*
 * Until when the next of n tries may last if all are to end by a deadline: one
 * that meets silence leaves their share of the time to the others.
 */
static inline TimestampTz
clock_share(TimestampTz deadline, int n)
{
	TimestampTz now = clock_now();

	return deadline > now ? now + (deadline - now) / n : deadline;
}

#endif							/* OUTBOX_CLOCK_H */
