/*
 * wait_event.c
 *		What our processes wait for, as pg_stat_activity shows it.
 *
 * Called wherever a process sleeps, with one of the waits of wait_event.h.
 */
#include "postgres.h"

#include "utils/wait_event.h"

#include "src/compat.h"
#include "src/wait_event.h"

static const char *const names[] = {
#define OUTBOX_WAIT_NAME(wait, name) name,
	OUTBOX_WAIT_LIST(OUTBOX_WAIT_NAME)
#undef OUTBOX_WAIT_NAME
};

/* Returns PostgreSQL's number of a wait, for WaitLatch() and similar functions. */
uint32
wait_event_of(OutboxWait wait)
{
	static uint32 events[OUTBOX_WAITS];

	/*
	 * PostgreSQL 17 takes a lock to look a name up, so that is done once per
	 * process.
	 */
	if (events[wait] == 0)
		events[wait] = compat_wait_event(names[wait]);
	return events[wait];
}
