/*
 * clock.h
 *		A clock that is never set, for waits and deadlines.
 *
 * It counts microseconds since some moment, so that TimestampTz arithmetic
 * works; 0 is longer ago than any interval that can be set. Times that are
 * stored or shown are taken from the wall clock; intervals within a process are
 * measured by this one. Otherwise setting the wall clock back by an hour would
 * mean waiting for an hour.
 */
#ifndef OUTBOX_CLOCK_H
#define OUTBOX_CLOCK_H

#include "datatype/timestamp.h"
#include "portability/instr_time.h"
#include "utils/timestamp.h"

/* Returns the time of this clock. */
static inline TimestampTz
clock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (TimestampTz) INSTR_TIME_GET_MICROSEC(now) + 365 * USECS_PER_DAY;
}

/* The same of a clock that also counts while the machine sleeps, for what another machine waits for meanwhile. */
static inline TimestampTz
clock_with_sleep(void)
{
#ifdef CLOCK_BOOTTIME
	struct timespec now;

	if (clock_gettime(CLOCK_BOOTTIME, &now) == 0)
		return now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000 + 365 * USECS_PER_DAY;
#endif
	return clock_now();
}

/* Returns a time of the wall clock as Redis has it: milliseconds since 1970. */
static inline int64
clock_unix_ms(TimestampTz at)
{
	return (at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY) / 1000;
}

/* Returns how many milliseconds it is until then, at least 0. */
static inline long
clock_ms_until(TimestampTz when)
{
	return TimestampDifferenceMilliseconds(clock_now(), when);
}

/* Returns how many milliseconds it is until something done every `interval` ms is due again. */
static inline long
clock_ms_until_next(TimestampTz last, int interval)
{
	return clock_ms_until(TimestampTzPlusMilliseconds(last, interval));
}

/*
 * Returns until when the next of n tries may last if all must end by a
 * deadline, so that one without an answer leaves the others their share of the
 * time.
 */
static inline TimestampTz
clock_share(TimestampTz deadline, int n)
{
	TimestampTz now = clock_now();

	return deadline > now ? now + (deadline - now) / n : deadline;
}

#endif							/* OUTBOX_CLOCK_H */
